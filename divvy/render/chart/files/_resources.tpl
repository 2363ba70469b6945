{{/*
The resources that the pools offer, separated by blanks. A rule counts if a GPU of the pool is
left for it: by index, or by a pattern over models; a UUID counts as found. What claims serve is
no resource of a node.
*/}}
{{- define "divvy.resources" -}}
{{- $found := list -}}
{{- range $pool := .Values.pools -}}
  {{- $gpus := int (dig "hardware" "gpus" 0 $pool) -}}
  {{- $overrides := $pool.overrides | default dict -}}
  {{- $profiles := values $overrides -}}
  {{- if gt (int (dig "hardware" "count" 1000000 $pool)) (len $overrides) -}}
    {{- $profiles = append $profiles $pool.profile -}}
  {{- end -}}
  {{- range $profile := uniq $profiles -}}
    {{- $rules := get $.Values.profiles $profile -}}
    {{- $claimed := false -}}
    {{- range $rule := kindIs "slice" $rules | ternary $rules (list $rules) -}}
      {{- if kindIs "map" (get ($rule | default dict) "claims") }}{{ $claimed = true }}{{ end -}}
    {{- end -}}
    {{- if $claimed }}{{ continue }}{{ end -}}
    {{- $left := list -}}
    {{- range $index := until ($gpus | default 64) }}{{ $left = append $left (toString $index) }}{{ end -}}
    {{- range $rule := kindIs "slice" $rules | ternary $rules (list $rules) -}}
      {{- $devices := $rule.devices | default "all" -}}
      {{- $takes := false -}}
      {{- if kindIs "slice" $devices -}}
        {{- range $device := $devices -}}
          {{- $device = toString $device -}}
          {{- if or (has $device $left) (hasPrefix "GPU-" $device) }}{{ $takes = true }}{{ end -}}
          {{- $left = without $left $device -}}
        {{- end -}}
      {{- else if hasPrefix "GPU-" $devices -}}
        {{- $takes = true -}}
      {{- else -}}
        {{- $pattern := lower $devices | replace "." "[.]" | replace "*" ".*" | replace "?" "." | printf "^%s$" -}}
        {{- $model := dig "hardware" "model" "" $pool | lower -}}
        {{- if or (eq $devices "all") (regexMatch $pattern $model) -}}
          {{- if $left }}{{ $takes = true }}{{ end -}}
          {{- $left = list -}}
        {{- else if not $model -}}
          {{- $takes = true -}}
        {{- end -}}
      {{- end -}}
      {{- if $takes }}{{ $found = concat $found (splitList " " (include "divvy.resourcesOfRule" $rule)) }}{{ end -}}
    {{- end -}}
    {{- if $left }}{{ $found = append $found "nvidia.com/gpu" }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $found | uniq | sortAlpha | join " " -}}
{{- end }}

{{/* A pattern of the resources of GPUs, in the signs that kube-state-metrics leaves. */}}
{{- define "divvy.requestedResources" -}}
{{- $names := list (dig "names" "gpu" "nvidia.com/gpu" .Values.AsMap) -}}
{{- range $profile := .Values.profiles -}}
  {{- range $rule := kindIs "slice" $profile | ternary $profile (list $profile) -}}
    {{- range list $rule.timeSlicing $rule.mps -}}
      {{- with get (. | default dict) "resourceName" }}{{ $names = append $names (include "divvy.qualified" .) }}{{ end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $labels := list -}}
{{- range $names -}}
  {{- $label := regexReplaceAll "[^a-zA-Z0-9_]" . "_" -}}
  {{- if not (regexMatch "^nvidia_com_(gpu|mig)" $label) }}{{ $labels = append $labels $label }}{{ end -}}
{{- end -}}
{{- concat (list "nvidia_com_(gpu|mig).*") ($labels | uniq | sortAlpha) | join "|" -}}
{{- end }}

{{/* A resource with the vendor's domain where it has none. */}}
{{- define "divvy.qualified" -}}
{{- contains "/" . | ternary . (printf "nvidia.com/%s" .) -}}
{{- end }}

{{/* The resources that a rule offers, separated by blanks. */}}
{{- define "divvy.resourcesOfRule" -}}
{{- $mig := .mig | default dict -}}
{{- $names := list -}}
{{- if eq (dig "strategy" "mixed" $mig) "mixed" -}}
  {{- range $profile := keys ($mig.layout | default $mig) -}}
    {{- if ne $profile "strategy" }}{{ $names = append $names (printf "nvidia.com/mig-%s" ($profile | replace "+" ".")) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $names = $names | default (list "nvidia.com/gpu") -}}
{{- with .timeSlicing | default .mps -}}
  {{- $shared := list -}}
  {{- $suffix := ternary ".shared" "" (dig "renameByDefault" true .) -}}
  {{- range $names }}{{ $shared = append $shared (printf "%s%s" . $suffix) }}{{ end -}}
  {{- $names = $shared -}}
  {{- with .resourceName }}{{ $names = list (include "divvy.qualified" .) }}{{ end -}}
{{- end -}}
{{- join " " $names -}}
{{- end }}
