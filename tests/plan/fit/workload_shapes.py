"""Manifests as charts, operators and examples have them, none of which fits one node with one GPU.

Each is a form that others have published, in words of ours. The node has the labels of the pool
`a`, and one whole GPU: to the device plugin, or (`CLAIMING`) to claims.
"""

from __future__ import annotations

GPU = "resources: {limits: {nvidia.com/gpu: 1}}"
ONE = f"{{containers: [{{name: main, image: app, {GPU}}}]}}"
TWO = "{containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 2}}}]}"
BIG = "{name: main, image: app, resources: {limits: {nvidia.com/gpu: 2}}}"

# What is counted, and how many pods there are.
COUNTED: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "pod": (f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {TWO}", [("Pod", 1)]),
    "two containers": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
        f"    - {{name: one, image: app, {GPU}}}\n    - {{name: two, image: app, {GPU}}}",
        [("Pod", 1)],
    ),
    "sidecar": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  initContainers:\n"
        f"    - {{name: side, image: app, restartPolicy: Always, {GPU}}}\n"
        f"  containers:\n    - {{name: main, image: app, {GPU}}}",
        [("Pod", 1)],
    ),
    "init container": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
        f"  initContainers:\n    - {BIG}\n  containers: [{{name: main, image: app}}]",
        [("Pod", 1)],
    ),
    "node selector": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeSelector: {pool: b}\n"
        f"  containers:\n    - {{name: main, image: app, {GPU}}}",
        [("Pod", 1)],
    ),
    "node affinity": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  affinity:\n    nodeAffinity:\n"
        "      requiredDuringSchedulingIgnoredDuringExecution:\n        nodeSelectorTerms:\n"
        "          - matchExpressions:\n              - {key: pool, operator: In, values: [b]}\n"
        f"  containers:\n    - {{name: main, image: app, {GPU}}}",
        [("Pod", 1)],
    ),
    "node name": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  schedulingGates: [{name: wait}]\n"
        f"  containers:\n    - {{name: main, image: app, {GPU}}}",
        [("Pod", 1)],
    ),
    "deployment": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: team}\nspec:\n"
        "  replicas: 2\n  revisionHistoryLimit: 3\n  selector: {matchLabels: {app: web}}\n"
        "  strategy: {rollingUpdate: {maxSurge: 1}}\n"
        f"  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {ONE}",
        [("Deployment", 2)],
    ),
    "replica set": (
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec:\n  replicas: 3\n"
        f"  selector: {{matchLabels: {{app: web}}}}\n  template: {{spec: {ONE}}}",
        [("ReplicaSet", 3)],
    ),
    "stateful set": (
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 2\n"
        "  serviceName: db\n  volumeClaimTemplates:\n    - metadata: {name: data}\n"
        "      spec: {resources: {requests: {storage: 8Gi}}}\n"
        f"  template: {{spec: {ONE}}}",
        [("StatefulSet", 2)],
    ),
    "daemon set": (
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: probe}\nspec:\n"
        f"  selector: {{matchLabels: {{app: p}}}}\n  template: {{spec: {TWO}}}",
        [("DaemonSet", 1)],
    ),
    "job": (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: train-}\nspec:\n"
        "  parallelism: 4\n  completions: 6\n  backoffLimit: 0\n  completionMode: Indexed\n"
        f"  template: {{spec: {ONE}}}",
        [("Job", 4)],
    ),
    "cron job": (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec:\n"
        '  schedule: "0 3 * * *"\n  jobTemplate:\n    spec:\n      parallelism: 2\n'
        f"      template: {{spec: {ONE}}}",
        [("CronJob", 2)],
    ),
    "replication controller": (
        "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: old}\nspec:\n"
        f"  replicas: 2\n  template: {{spec: {ONE}}}",
        [("ReplicationController", 2)],
    ),
    "list": (
        f"apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Pod\n"
        f"    metadata: {{name: a}}\n    spec: {TWO}\n"
        "  - {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}",
        [("Pod", 1)],
    ),
    "ray cluster": (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: ray}\nspec:\n"
        '  rayVersion: "2.46.0"\n  headGroupSpec:\n    rayStartParams: {num-cpus: "0"}\n'
        "    template: {spec: {containers: [{name: head, image: ray}]}}\n"
        "  workerGroupSpecs:\n    - groupName: gpu\n      replicas: 2\n      minReplicas: 1\n"
        '      maxReplicas: 4\n      rayStartParams: {num-gpus: "1"}\n'
        f"      template: {{spec: {ONE}}}",
        [("RayCluster", 1), ("RayCluster", 2)],
    ),
    "ray cluster of several hosts": (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: ray}\nspec:\n"
        "  headGroupSpec: {template: {spec: {containers: [{name: head, image: ray}]}}}\n"
        "  workerGroupSpecs:\n    - groupName: gpu\n      replicas: 1\n      numOfHosts: 3\n"
        f"      template: {{spec: {ONE}}}",
        [("RayCluster", 1), ("RayCluster", 3)],
    ),
    "ray job": (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: ray}\nspec:\n"
        "  entrypoint: python train.py\n  entrypointNumGpus: 1\n  ttlSecondsAfterFinished: 60\n"
        "  rayClusterSpec:\n"
        "    headGroupSpec: {template: {spec: {containers: [{name: head, image: ray}]}}}\n"
        "    workerGroupSpecs:\n      - groupName: gpu\n        replicas: 2\n"
        f"        template: {{spec: {ONE}}}\n"
        "  submitterPodTemplate: {spec: {containers: [{name: submit, image: ray}]}}",
        [("RayJob", 1), ("RayJob", 2), ("RayJob", 1)],
    ),
    "ray service": (
        "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: llm}\nspec:\n"
        "  serveConfigV2: |\n    applications:\n      - name: llm\n  rayClusterConfig:\n"
        f"    headGroupSpec: {{template: {{spec: {ONE}}}}}\n"
        "    workerGroupSpecs:\n      - groupName: gpu\n        replicas: 1\n"
        f"        template: {{spec: {ONE}}}",
        [("RayService", 1), ("RayService", 1)],
    ),
    "leader worker set": (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: vllm}\n"
        "spec:\n  replicas: 2\n  leaderWorkerTemplate:\n    size: 2\n"
        "    restartPolicy: RecreateGroupOnPodRestart\n"
        "    leaderTemplate: {spec: {containers: [{name: leader, image: vllm}]}}\n"
        f"    workerTemplate: {{spec: {ONE}}}",
        [("LeaderWorkerSet", 2), ("LeaderWorkerSet", 2)],
    ),
    "leader worker set without a leader's template": (
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: vllm}\n"
        "spec:\n  replicas: 1\n  leaderWorkerTemplate:\n    size: 4\n"
        f"    workerTemplate: {{spec: {ONE}}}",
        [("LeaderWorkerSet", 4)],
    ),
    "job set": (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: train}\nspec:\n"
        "  failurePolicy: {maxRestarts: 3}\n  replicatedJobs:\n    - name: workers\n"
        "      replicas: 2\n      template:\n        spec:\n          parallelism: 3\n"
        "          completions: 2\n          backoffLimit: 0\n"
        f"          template: {{spec: {ONE}}}",
        [("JobSet", 4)],
    ),
    "pytorch job": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: bert}\nspec:\n"
        '  nprocPerNode: "8"\n  runPolicy: {backoffLimit: 2}\n  pytorchReplicaSpecs:\n'
        f"    Master:\n      replicas: 1\n      template: {{spec: {ONE}}}\n"
        f"    Worker:\n      replicas: 3\n      template: {{spec: {ONE}}}",
        [("PyTorchJob", 1), ("PyTorchJob", 3)],
    ),
    "tensorflow job": (
        "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: mnist}\nspec:\n"
        "  tfReplicaSpecs:\n    PS:\n      replicas: 1\n"
        "      template: {spec: {containers: [{name: tensorflow, image: tf}]}}\n"
        f"    Worker:\n      replicas: 2\n      template: {{spec: {ONE}}}",
        [("TFJob", 1), ("TFJob", 2)],
    ),
    "mpi job": (
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: horovod}\nspec:\n"
        "  slotsPerWorker: 1\n  mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n"
        "      template: {spec: {containers: [{name: launcher, image: mpi}]}}\n"
        f"    Worker:\n      replicas: 2\n      template: {{spec: {ONE}}}",
        [("MPIJob", 1), ("MPIJob", 2)],
    ),
    "notebook": (
        "apiVersion: kubeflow.org/v1\nkind: Notebook\nmetadata: {name: nb, namespace: alice}\n"
        f"spec: {{template: {{spec: {TWO}}}}}",
        [("Notebook", 1)],
    ),
    "volcano job": (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\nspec:\n"
        "  minAvailable: 3\n  queue: default\n  maxRetry: 5\n  tasks:\n    - name: worker\n"
        f"      replicas: 3\n      template: {{spec: {ONE}}}",
        [("Job", 3)],
    ),
    "rollout": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n"
        "  replicas: 2\n  revisionHistoryLimit: 1\n"
        "  strategy: {canary: {steps: [{setWeight: 20}]}}\n"
        f"  selector: {{matchLabels: {{app: r}}}}\n  template: {{spec: {ONE}}}",
        [("Rollout", 2)],
    ),
    "clone set": (
        "apiVersion: apps.kruise.io/v1alpha1\nkind: CloneSet\nmetadata: {name: c}\nspec:\n"
        f"  replicas: 5\n  template: {{spec: {ONE}}}",
        [("CloneSet", 5)],
    ),
    "seldon deployment": (
        "apiVersion: machinelearning.seldon.io/v1\nkind: SeldonDeployment\nmetadata: {name: s}\n"
        "spec:\n  predictors:\n    - name: default\n      replicas: 2\n      componentSpecs:\n"
        f"        - spec: {ONE}",
        [("SeldonDeployment", 2)],
    ),
    "workload of kueue": (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Workload\nmetadata: {name: w}\nspec:\n"
        "  queueName: gpus\n  podSets:\n    - name: main\n      count: 2\n"
        f"      template: {{spec: {ONE}}}",
        [("Workload", 2)],
    ),
    "openshift template": (
        "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects:\n"
        "  - apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: in-template}\n"
        f"    spec: {{replicas: 2, template: {{spec: {ONE}}}}}\n"
        "  - {apiVersion: v1, kind: Service, metadata: {name: s}}",
        [("Deployment", 2)],
    ),
    "app wrapper": (
        "apiVersion: workload.codeflare.dev/v1beta2\nkind: AppWrapper\nmetadata: {name: w}\nspec:\n"
        "  components:\n    - template:\n        apiVersion: batch/v1\n        kind: Job\n"
        "        metadata: {name: j}\n"
        f"        spec: {{parallelism: 2, template: {{spec: {ONE}}}}}",
        [("Job", 2)],
    ),
}

# What may ask for GPUs and cannot be counted, and words that name it.
UNKNOWN: dict[str, tuple[str, str]] = {
    "kserve model": (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: i}\n"
        "spec: {predictor: {minReplicas: 1, model: {modelFormat: {name: vLLM}, "
        "resources: {limits: {nvidia.com/gpu: 8}}}}}",
        "spec.predictor.model.resources.limits.nvidia.com/gpu",
    ),
    "kserve containers": (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: i}\n"
        f"spec: {{predictor: {ONE}}}",
        "how many pods a InferenceService makes is not known",
    ),
    "knative service": (
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n"
        f"spec: {{template: {{spec: {ONE}}}}}",
        "how many pods a Service makes is not known",
    ),
    "workflow": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\nspec:\n"
        "  entrypoint: train\n  templates:\n    - name: train\n      container:\n"
        "        image: app\n        resources: {limits: {nvidia.com/gpu: 4}}",
        "spec.templates[0].container.resources.limits.nvidia.com/gpu",
    ),
    "workflow with a manifest": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\nspec:\n"
        "  templates:\n    - name: make\n      resource:\n        action: create\n"
        "        manifest: |\n          kind: Pod\n          limits: {nvidia.com/gpu: 4}",
        "spec.templates[0].resource.manifest",
    ),
    "spark application": (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: s}\n"
        "spec:\n  driver: {cores: 1}\n  executor:\n    instances: 4\n"
        "    gpu: {name: nvidia.com/gpu, quantity: 1}",
        "spec.executor.gpu",
    ),
    "train job": (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n"
        "  runtimeRef: {name: torch-distributed}\n  trainer:\n    numNodes: 4\n"
        "    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}",
        "spec.trainer.resourcesPerNode.limits.nvidia.com/gpu",
    ),
    "katib experiment": (
        "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: e}\nspec:\n"
        "  parallelTrialCount: 3\n  maxTrialCount: 12\n  trialTemplate:\n    trialSpec:\n"
        f"      apiVersion: batch/v1\n      kind: Job\n      spec: {{template: {{spec: {ONE}}}}}",
        "how often it makes the Job at spec.trialTemplate.trialSpec is not known",
    ),
    "llm inference service": (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {name: l}\n"
        "spec:\n  replicas: 1\n  parallelism: {data: 8, dataLocal: 4}\n"
        f"  template: {ONE}\n  worker: {ONE}",
        "spec.parallelism: is a mapping; a number such as 3 is expected",
    ),
    "class in an annotation": (
        "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata:\n"
        "  name: l\n  annotations: {serving.kserve.io/exp-dra-device-class: gpu.nvidia.com}\n"
        "spec: {replicas: 1, template: {containers: [{name: main, image: app}]}}",
        "metadata.annotations.serving.kserve.io/exp-dra-device-class",
    ),
    "flyte workflow": (
        "apiVersion: flyte.lyft.com/v1alpha1\nkind: FlyteWorkflow\nmetadata: {name: f}\n"
        "tasks: {t: {container: {image: i, resources: {limits: [{name: GPU, value: '40'}]}}}}",
        "tasks.t.container.resources.limits[0].name",
    ),
    "kubeai model": (
        "apiVersion: kubeai.org/v1\nkind: Model\nmetadata: {name: m}\n"
        "spec: {engine: VLLM, url: 'hf://a/b', resourceProfile: 'l4:8', minReplicas: 3}",
        "not understood in this Model: which GPUs it takes",
    ),
    "kaito workspace": (
        "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: w}\n"
        "resource: {count: 3, instanceType: Standard_ND96asr_v4}\n"
        "inference: {preset: {name: phi-4}}",
        "not understood in this Workspace: which GPUs it takes",
    ),
    "llmaz playground": (
        "apiVersion: inference.llmaz.io/v1alpha1\nkind: Playground\nmetadata: {name: p}\n"
        "spec: {replicas: 20, modelClaim: {modelName: qwen, inferenceFlavors: [a100]}}",
        "not understood in this Playground: which GPUs it takes",
    ),
    "workflow of a template": (
        "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\n"
        "spec: {workflowTemplateRef: {name: training-gpu}}",
        "not understood in this Workflow: spec.workflowTemplateRef",
    ),
    "task run of a task": (
        "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata: {name: t}\n"
        "spec: {taskRef: {name: train}}",
        "not understood in this TaskRun: spec.taskRef",
    ),
    "train job of a runtime": (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\n"
        "spec: {runtimeRef: {name: torch-distributed}, trainer: {numNodes: 4}}",
        "not understood in this TrainJob: spec.runtimeRef",
    ),
    "kserve model of a runtime": (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: i}\n"
        "spec: {predictor: {model: {modelFormat: {name: vLLM}, runtime: vllm-8-gpus-each}}}",
        "not understood in this InferenceService: spec.predictor.model.modelFormat",
    ),
    "dynamo graph": (
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: d}\nspec:\n"
        '  services:\n    Decode:\n      replicas: 2\n      resources: {limits: {gpu: "4"}}\n'
        "      extraPodSpec: {mainContainer: {image: vllm}}",
        "spec.services.Decode.resources.limits.gpu",
    ),
    "helm release": (
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: h}\nspec:\n"
        "  chart: {spec: {chart: vllm}}\n"
        "  values: {replicaCount: 4, resources: {limits: {nvidia.com/gpu: 1}}}",
        "spec.values.resources.limits.nvidia.com/gpu",
    ),
    "elastic nodes of an unknown kind": (
        "apiVersion: example.com/v1\nkind: Trainer\nmetadata: {name: t}\nspec:\n  numWorkers: 4\n"
        f"  template: {{spec: {ONE}}}",
        "what spec.numWorkers counts is not known",
    ),
    "fraction of kai": (
        'apiVersion: v1\nkind: Pod\nmetadata: {name: half, annotations: {gpu-fraction: "0.5"}}\n'
        "spec: {containers: [{name: main, image: app}]}",
        "the annotation gpu-fraction is not Divvy's",
    ),
    "scheduler of kai": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {kai.scheduler/queue: q}}\n"
        f"spec: {{schedulerName: kai-scheduler, containers: [{{name: main, image: app, {GPU}}}]}}",
        "its scheduler is kai-scheduler, not Kubernetes' own",
    ),
    "index of hami": (
        "apiVersion: v1\nkind: Pod\n"
        'metadata: {name: a, annotations: {nvidia.com/use-gpuindexes: "0"}}\n'
        f"spec: {ONE}",
        "the annotation nvidia.com/use-gpuindexes is not Divvy's",
    ),
    "mode of volcano": (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  template:\n"
        "    metadata: {annotations: {volcano.sh/vgpu-mode: mig}}\n"
        f"    spec: {ONE}",
        "the annotation volcano.sh/vgpu-mode is not Divvy's",
    ),
    "class of nvidia": (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n"
        "metadata: {name: small, labels: {app.kubernetes.io/component: driver}}\nspec:\n"
        '  selectors: [{cel: {expression: "true"}}]\n  extendedResourceName: nvidia.com/gpu\n'
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {ONE}",
        "the DeviceClass small, which is not Divvy's, serves nvidia.com/gpu, too",
    ),
    "field of a later release": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodePreference: {pool: b}\n"
        f"  containers:\n    - {{name: main, image: app, {GPU}}}",
        "not understood: spec.nodePreference",
    ),
    "parameters": (
        "apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects:\n"
        "  - apiVersion: v1\n    kind: Pod\n    metadata: {name: p}\n    spec:\n"
        f'      nodeSelector: {{pool: "${{POOL}}"}}\n      containers: [{{name: a, {GPU}}}]',
        "to be rendered: spec.nodeSelector.pool",
    ),
}

_CLAIMS = "containers: [{name: main, image: app, resources: {claims: [{name: g}]}}]"
_POD = (
    "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n"
    f"  {_CLAIMS}\n  resourceClaims: [{{name: g, resourceClaimTemplateName: t}}]"
)


def _template(version: str, request: str, more: str = "") -> str:
    return (
        f"apiVersion: resource.k8s.io/{version}\nkind: ResourceClaimTemplate\n"
        f"metadata: {{name: t}}\nspec: {{spec: {{devices: {{requests: [{request}]{more}}}}}}}{_POD}"
    )


_TWO = "deviceClassName: divvy-gpu, count: 2"
_GPUS = "deviceClassName: divvy-gpu"
# For a node whose GPU is for claims: its requests, and whether the result is no or unknown.
CLAIMING: dict[str, tuple[str, str]] = {
    "claim of v1": (_template("v1", f"{{name: gpu, exactly: {{{_TWO}}}}}"), "no"),
    "claim of v1beta2": (_template("v1beta2", f"{{name: gpu, exactly: {{{_TWO}}}}}"), "no"),
    "claim of v1beta1": (_template("v1beta1", f"{{name: gpu, {_TWO}}}"), "no"),
    "claim of v1alpha2": (
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n"
        f"spec: {{spec: {{resourceClassName: gpu.nvidia.com}}}}{_POD}",
        "unknown",
    ),
    "claim of v1 as in v1beta1": (_template("v1", f"{{name: gpu, {_TWO}}}"), "unknown"),
    "alternatives": (
        _template("v1", f"{{name: gpu, firstAvailable: [{{name: a, {_TWO}}}]}}"),
        "no",
    ),
    "two requests": (
        _template("v1", f"{{name: a, exactly: {{{_GPUS}}}}}, {{name: b, exactly: {{{_GPUS}}}}}"),
        "no",
    ),
    "condition in another language": (
        _template("v1", f"{{name: gpu, exactly: {{{_GPUS}, selectors: [{{rego: {{}}}}]}}}}"),
        "unknown",
    ),
    "configuration": (
        _template(
            "v1",
            f"{{name: gpu, exactly: {{{_GPUS}}}}}",
            ", config: [{requests: [gpu], opaque: {driver: gpu.nvidia.com, parameters: {}}}]",
        ),
        "no",
    ),
    "size by limits": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
        "    - {name: main, image: app, resources: {limits: {nvidia.com/gpumem: 90000}}}",
        "no",
    ),
    "claims of a deployment": (
        _template("v1", f"{{name: gpu, exactly: {{{_GPUS}}}}}").partition("---")[0]
        + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 2\n"
        f"  template:\n    spec:\n      {_CLAIMS}\n"
        "      resourceClaims: [{name: g, resourceClaimTemplateName: t}]",
        "no",
    ),
}
