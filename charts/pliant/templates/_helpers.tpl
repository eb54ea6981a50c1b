{{/* A cluster runs one instance of this driver, so its name is fixed. Object names do not contain the name of the release. */}}

{{- define "pliant.driver" -}}lvm.csi.pliant.io{{- end }}

{{- define "pliant.fullname" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "pliant" -}}
{{- end }}

{{/* Selector labels of a workload's pods: dict component. They contain no version, so an upgrade replaces pods only if necessary. */}}
{{- define "pliant.selector" -}}
app.kubernetes.io/name: pliant
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "pliant.labels" -}}
{{- include "pliant.labelsWith" (dict "root" . "labels" dict) -}}
{{- end }}

{{/* Labels of every object and additional labels, which take precedence over commonLabels: dict root, labels. */}}
{{- define "pliant.labelsWith" -}}
app.kubernetes.io/name: pliant
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- with merge dict (.labels | default dict) (.root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels and annotations of a workload's pods: dict root, component. */}}
{{- define "pliant.podMetadata" -}}
{{- $values := get .root.Values .component -}}
labels:
  {{- include "pliant.selector" . | nindent 2 }}
  {{- with merge dict ($values.podLabels | default dict) (.root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* ServiceAccount of a workload's pods: dict root, component. */}}
{{- define "pliant.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "pliant.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "pliant.labels" .root | nindent 4 }}
  {{- with (get .root.Values .component).serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{/* Scheduling constraints of a workload's pods: dict root, component. */}}
{{- define "pliant.scheduling" -}}
{{- $values := get .root.Values .component -}}
{{- if ne .component "node" }}
topologySpreadConstraints:
  {{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "pliant.selector" . | nindent 8 }}
  {{- end }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Security context of a pod: dict root, context. OpenShift assigns users to each namespace, and rejects others. */}}
{{- define "pliant.podSecurityContext" -}}
{{- $context := .context | default dict -}}
{{- if .root.Values.openshift.enabled }}{{ $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
securityContext:
  {{- toYaml $context | nindent 2 }}
{{- end }}

{{/* PodDisruptionBudget of a workload: dict root, component. */}}
{{- define "pliant.podDisruptionBudget" -}}
{{- with (get .root.Values .component).podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "pliant.fullname" $.root }}-{{ $.component }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- include "pliant.labels" $.root | nindent 4 }}
spec:
  # `minAvailable: 1` would block every drain if there is only one replica.
  maxUnavailable: {{ include "pliant.intOrShare" .maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "pliant.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* JSON settings of populator pods, for the operator. Kubernetes expands `$(NAME)` in arguments, so each `$` is escaped. */}}
{{- define "pliant.populatorPod" -}}
{{- $pod := pick .Values.populator "annotations" "nodeSelector" "tolerations" "priorityClassName" -}}
{{- $labels := merge dict (.Values.populator.labels | default dict) (.Values.commonLabels | default dict) -}}
{{- $pod = merge (dict "labels" $labels "imagePullPolicy" .Values.image.pullPolicy) $pod -}}
{{- range $key, $value := $pod }}{{ if not $value }}{{ $pod = omit $pod $key }}{{ end }}{{ end -}}
{{- $pod | toJson | replace "$" "$$" -}}
{{- end }}

{{/* Image reference with the digest, or else the tag: dict root, image. global.imageRegistry replaces the registry. */}}
{{- define "pliant.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if .image.digest }}{{ $repository }}@{{ .image.digest }}{{ else }}{{ $repository }}:{{ required (printf "image %s has neither tag nor digest" $repository) .image.tag }}{{ end }}
{{- end }}

{{- define "pliant.ownImage" -}}
{{- $why := "image.repository is empty. There is no public image yet: build one with the Dockerfile of the repository, push it, and add --set image.repository=REGISTRY/pliant" -}}
{{- $repository := required $why .Values.image.repository -}}
{{- $image := dict "repository" $repository "tag" (.Values.image.tag | default .Chart.AppVersion) "digest" .Values.image.digest -}}
{{- include "pliant.image" (dict "root" . "image" $image) }}
{{- end }}

{{/* Image pull secrets of a pod. */}}
{{- define "pliant.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Listen address: dict root, port. An IPv6 address needs brackets. */}}
{{- define "pliant.address" -}}
{{- $address := .root.Values.bindAddress -}}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}:{{ .port | int64 }}
{{- end }}

{{/* Number or percentage. Helm reads 1000000 as a float and would print 1e+06. */}}
{{- define "pliant.intOrShare" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ . | int64 }}{{ end }}
{{- end }}

{{/* Arguments that every sidecar accepts. */}}
{{- define "pliant.sidecarArgs" -}}
- --v={{ .logLevel | int64 }}
{{- with .extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of a Helm hook, which Helm deletes after success: dict hooks, weight. */}}
{{- define "pliant.hook" -}}
helm.sh/hook: {{ .hooks }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Security context of every container except that of the node plugin. */}}
{{- define "pliant.locked" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Liveness and readiness probes over HTTP: dict path, port. */}}
{{- define "pliant.probes" -}}
livenessProbe:
  httpGet:
    path: {{ .path }}
    port: {{ .port }}
  initialDelaySeconds: 10
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 5
readinessProbe:
  httpGet:
    path: {{ .path }}
    port: {{ .port }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Endpoints of a PodMonitor or ServiceMonitor, with the labels that the alerts and the dashboard expect: dict component, ports, interval. */}}
{{- define "pliant.scraped" -}}
{{- $dot := . -}}
{{- range .ports }}
- port: {{ . }}
  interval: {{ $dot.interval }}
  relabelings:
    - targetLabel: job
      replacement: pliant-{{ ternary $dot.component . (eq . "metrics") }}
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
{{- end }}
{{- end }}

{{/* `true` if csi-snapshotter runs: it is enabled, and the cluster has the CRDs, without which it exits. */}}
{{- define "pliant.snapshots" -}}
{{- if and .Values.controller.snapshotter.enabled (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1/VolumeSnapshotContent") }}true{{ end -}}
{{- end }}

{{/* Number of a metrics port: dict component, name. */}}
{{- define "pliant.metricsPort" -}}
{{- get (dict "provisioner" 9810 "resizer" 9811 "snapshotter" 9812 "metrics" (ternary 9808 9809 (eq .component "node"))) .name -}}
{{- end }}

{{/*
Pool of a StorageClass: dict class, root. A StorageClass without a pool uses the pool `default`, or else the first one, so an
additional pool changes nothing. An existing StorageClass retains its pool, because Kubernetes rejects a change.
*/}}
{{- define "pliant.poolOf" -}}
{{- $class := .class -}}
{{- $pools := dict -}}
{{- range .root.Values.pools }}{{ $_ := set $pools .name true }}{{ end -}}
{{- $parameters := $class.parameters | default dict -}}
{{- if or (hasKey $class "pool") (hasKey $parameters "pool") -}}
{{- $named := $class.pool | default $parameters.pool | default "" -}}
{{- if and $named $pools (not (hasKey $pools $named)) (not (lookup "pliant.io/v1alpha1" "StoragePool" "" $named)) -}}
{{- fail (printf "storageClasses: class %s uses pool %s, which is not one of pools: %s" $class.name $named (keys $pools | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $class.pool | default "" -}}
{{- else -}}
{{- $existing := lookup "storage.k8s.io/v1" "StorageClass" "" $class.name -}}
{{- if $existing -}}
{{- get ($existing.parameters | default dict) "pool" -}}
{{- else if hasKey $pools "default" -}}
default
{{- else -}}
{{- with first (.root.Values.pools | default list) }}{{ .name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
