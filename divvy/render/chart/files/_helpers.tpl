{{/* Labels of every object. Names do not follow the release: one agent serves a node. */}}
{{- define "divvy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: divvy
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The agent's image, always by digest. */}}
{{- define "divvy.image" -}}
{{- $repository := required "image.repository is missing: where the agent's image is" .Values.image.repository -}}
{{- $digest := required "image.digest is missing: sha256:… of the agent's image" .Values.image.digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- end }}

{{/* Where the driver's files are on the host; nothing for the root directory. */}}
{{- define "divvy.driverRoot" -}}
{{- regexReplaceAll "/+$" (dig "driver" "root" "/" .Values.AsMap) "" -}}
{{- end }}

{{/* The values of the stack file as canonical JSON. */}}
{{- define "divvy.stackValues" -}}
{{- dict "cluster" (pick .Values CLUSTER_KEYS) "schemaVersion" SCHEMA_VERSION | toRawJson -}}
{{- end }}

{{/* What the agents read. */}}
{{- define "divvy.configuration" -}}
{{- $document := include "divvy.stackValues" . | fromJson -}}
{{- $_ := set $document.cluster "namespace" .Release.Namespace -}}
{{- toRawJson $document -}}
{{- end }}

{{/* The short name of a configuration, as agents report which one they follow. */}}
{{- define "divvy.generation" -}}
{{- include "divvy.configuration" . | sha256sum | trunc 12 -}}
{{- end }}

{{/* The rules of all profiles that serve GPUs by claims, as JSON. */}}
{{- define "divvy.claims" -}}
{{- $claims := list -}}
{{- range $profile := .Values.profiles -}}
  {{- range $rule := kindIs "slice" $profile | ternary $profile (list $profile) -}}
    {{- if kindIs "map" (get ($rule | default dict) "claims") }}{{ $claims = append $claims $rule.claims }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toJson $claims -}}
{{- end }}

{{/* Whether any profile is served by claims. */}}
{{- define "divvy.byClaims" -}}
{{- if include "divvy.claims" . | fromJsonArray }}true{{ end -}}
{{- end }}

{{/* The claims that have shares, as JSON. */}}
{{- define "divvy.claimsWithShares" -}}
{{- $found := list -}}
{{- range $claims := include "divvy.claims" . | fromJsonArray -}}
  {{- if kindIs "map" (get $claims "shares") }}{{ $found = append $found $claims }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* Whether any profile has shares by claims. */}}
{{- define "divvy.sharesByClaims" -}}
{{- if include "divvy.claimsWithShares" . | fromJsonArray }}true{{ end -}}
{{- end }}

{{/* The tenants of all shares, as JSON. */}}
{{- define "divvy.tenants" -}}
{{- $tenants := list -}}
{{- range $claims := include "divvy.claimsWithShares" . | fromJsonArray -}}
  {{- $tenants = concat $tenants ($claims.tenants | default list) -}}
{{- end -}}
{{- $tenants | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* The MIG profiles that pods can claim, as JSON. */}}
{{- define "divvy.claimedMig" -}}
{{- $profiles := list -}}
{{- range $claims := include "divvy.claims" . | fromJsonArray -}}
  {{- $profiles = concat $profiles ($claims.mig | default list) -}}
{{- end -}}
{{- $profiles | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* A list in JSON as one of CEL. */}}
{{- define "divvy.inCel" -}}
{{- $quoted := list -}}
{{- range . | fromJsonArray }}{{ $quoted = append $quoted (squote .) }}{{ end -}}
[{{ join ", " $quoted }}]
{{- end }}

{{/* What the policies compute with: the tenants. */}}
{{- define "divvy.claims.tenants" -}}
{{- include "divvy.tenants" . | include "divvy.inCel" -}}
{{- end }}

{{/* Whether no share is for a namespace without a tenant. */}}
{{- define "divvy.claims.tenantsOnly" -}}
{{- $only := true -}}
{{- range $claims := include "divvy.claimsWithShares" . | fromJsonArray -}}
  {{- if not $claims.tenants }}{{ $only = false }}{{ end -}}
{{- end -}}
{{- $only -}}
{{- end }}

{{/* The models of all pools, as JSON: none where one pool does not say, or of an unknown model. */}}
{{- define "divvy.models" -}}
{{- $known := .Files.Get "files/gpu-models.json" | fromJson -}}
{{- $models := list -}}
{{- $all := true -}}
{{- range $pool := .Values.pools -}}
  {{- $model := get $known (dig "hardware" "model" "" $pool | lower) -}}
  {{- if $model }}{{ $models = append $models $model }}{{ else }}{{ $all = false }}{{ end -}}
{{- end -}}
{{- ternary $models list $all | toJson -}}
{{- end }}

{{/* The types of the GPUs of all pools. */}}
{{- define "divvy.claims.types" -}}
{{- $types := list -}}
{{- range $model := include "divvy.models" . | fromJsonArray }}{{ $types = concat $types $model.types }}{{ end -}}
{{- $types | uniq | sortAlpha | toJson | include "divvy.inCel" -}}
{{- end }}

{{/* The memory of the largest share in MiB. */}}
{{- define "divvy.claims.largest" -}}
{{- $memory := 0 -}}
{{- range $model := include "divvy.models" . | fromJsonArray }}{{ $memory = max $memory ($model.memory | int64) }}{{ end -}}
{{- $times := 1.0 -}}
{{- range $claims := include "divvy.claimsWithShares" . | fromJsonArray -}}
  {{- $times = maxf $times (dig "shares" "memory" "oversubscribe" 1.0 $claims) -}}
{{- end -}}
{{- if $memory }}{{ mulf $memory $times | floor | int64 }}{{ else }}UNKNOWN_LARGEST_MIB{{ end -}}
{{- end }}

{{/* Whether any profile shares GPUs by MPS. */}}
{{- define "divvy.byMps" -}}
{{- $found := false -}}
{{- range $profile := .Values.profiles -}}
  {{- range $rule := kindIs "slice" $profile | ternary $profile (list $profile) -}}
    {{- if $rule.mps }}{{ $found = true }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end }}

{{/* Whether the agents look at what uses a GPU: a memory limit, MPS, or shares by claims. */}}
{{- define "divvy.watchesMemory" -}}
{{- $found := false -}}
{{- range $profile := .Values.profiles -}}
  {{- range $rule := kindIs "slice" $profile | ternary $profile (list $profile) -}}
    {{- if dig "timeSlicing" "memoryLimit" "" $rule }}{{ $found = true }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if or $found (include "divvy.byMps" .) (include "divvy.sharesByClaims" .) }}true{{ end -}}
{{- end }}

{{/* Whether any pool has its container runtime prepared. */}}
{{- define "divvy.configuresRuntime" -}}
{{- $found := false -}}
{{- range $pool := .Values.pools -}}
  {{- if dig "runtime" "configure" false $pool }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end }}

{{/* Whether every pool selects its nodes; the agent runs everywhere for one that does not. */}}
{{- define "divvy.selects" -}}
{{- $all := true -}}
{{- range $pool := .Values.pools -}}
  {{- if not $pool.select }}{{ $all = false }}{{ end -}}
{{- end -}}
{{- if $all }}true{{ end -}}
{{- end }}

{{/* The nodes of all pools, one term per pool. */}}
{{- define "divvy.nodeSelectorTerms" -}}
{{- $terms := list -}}
{{- range $pool := .Values.pools -}}
  {{- $expressions := list -}}
  {{- range $key, $value := $pool.select -}}
    {{- $expressions = append $expressions (dict "key" $key "operator" "In" "values" (list $value)) -}}
  {{- end -}}
  {{- $terms = append $terms (dict "matchExpressions" $expressions) -}}
{{- end -}}
{{- toYaml $terms -}}
{{- end }}

{{/* A list of tolerations, the operator written out. */}}
{{- define "divvy.tolerationList" -}}
{{- $list := list -}}
{{- range . -}}
  {{- $list = append $list (merge (dict) . (dict "operator" "Equal")) -}}
{{- end -}}
{{- toYaml $list -}}
{{- end }}

{{/* The tolerations of all pools, each once: the agent runs on the nodes of every pool. */}}
{{- define "divvy.tolerations" -}}
{{- $all := list -}}
{{- range $pool := .Values.pools -}}
  {{- range $pool.tolerations -}}
    {{- $all = append $all (merge (dict) . (dict "operator" "Equal")) -}}
  {{- end -}}
{{- end -}}
{{- with $all }}{{ toYaml (uniq .) }}{{ end -}}
{{- end }}

{{/* Those for the controllers: of taints of the pools' own, none of nodes that are dead or cordoned. */}}
{{- define "divvy.controllerTolerations" -}}
{{- $own := list -}}
{{- range include "divvy.tolerations" . | fromYamlArray -}}
  {{- if and .key (not (regexMatch `NODE_STATE` .key)) }}{{ $own = append $own . }}{{ end -}}
{{- end -}}
{{- toYaml $own -}}
{{- end }}

{{/* What a schema cannot say. All mistakes are reported at once. */}}
{{- define "divvy.check" -}}
{{- $profiles := .Values.profiles -}}
{{- $known := keys $profiles | sortAlpha | join ", " -}}
{{- $problems := list -}}
{{- $open := list -}}
{{- $owners := dict -}}
{{- range $name, $pool := .Values.pools -}}
  {{- if not (hasKey $profiles $pool.profile) -}}
    {{- $problems = append $problems (printf "pools.%s.profile names profile %q, which does not exist (known: %s)" $name $pool.profile $known) -}}
  {{- end -}}
  {{- range $node, $profile := $pool.overrides -}}
    {{- if not (hasKey $profiles $profile) -}}
      {{- $problems = append $problems (printf "pools.%s.overrides.%s names profile %q, which does not exist (known: %s)" $name $node $profile $known) -}}
    {{- end -}}
    {{- with get $owners $node -}}
      {{- $problems = append $problems (printf "pools.%s.overrides.%s: the node is overridden in pool %s too" $name $node .) -}}
    {{- end -}}
    {{- $_ := set $owners $node $name -}}
  {{- end -}}
  {{- if not $pool.select }}{{ $open = append $open $name }}{{ end -}}
{{- end -}}
{{- if gt (len $open) 1 -}}
  {{- $problems = append $problems (printf "pools %s have no select: only one pool can be the default for GPU nodes" (join ", " $open)) -}}
{{- end -}}
{{- $kubernetes := .Capabilities.KubeVersion.Version -}}
{{- if and (include "divvy.byClaims" .) (semverCompare "<CLAIMS_SINCE-0" $kubernetes) -}}
  {{- $problems = append $problems (printf "Kubernetes is %s, and profiles with `claims` need CLAIMS_SINCE or newer: older versions can allocate one GPU twice, or cannot divide devices (helm template: --kube-version)" $kubernetes) -}}
{{- end -}}
{{- with $problems }}{{ fail (printf "\n  %s" (join "\n  " .)) }}{{ end -}}
{{- end }}
