{{/* Fixed names: a cluster has this driver once. */}}

{{- define "pliant.driver" -}}lvm.csi.pliant.io{{- end }}

{{/* Labels of a workload's pods: dict component. No version in them, so that pods change only when they must. */}}
{{- define "pliant.selector" -}}
app.kubernetes.io/name: pliant
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "pliant.labels" -}}
app.kubernetes.io/name: pliant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image by its digest, else by its tag. */}}
{{- define "pliant.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ required (printf "image %s has neither tag nor digest" .repository) .tag }}{{ end }}
{{- end }}

{{- define "pliant.ownImage" -}}
{{- $why := "image.repository is empty. There is no public image yet: build one with the Dockerfile of the repository, push it, and add --set image.repository=REGISTRY/pliant" -}}
{{- $repository := required $why .Values.image.repository -}}
{{- include "pliant.image" (dict "repository" $repository "tag" (.Values.image.tag | default .Chart.AppVersion) "digest" .Values.image.digest) }}
{{- end }}

{{/* Secrets for all images of a pod. */}}
{{- define "pliant.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where something is served: dict root, port. An IPv6 address stands in brackets. */}}
{{- define "pliant.address" -}}
{{- $address := .root.Values.bindAddress -}}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}:{{ .port | int64 }}
{{- end }}

{{/* Helm reads 1000000 as a float and would print 1e+06. */}}
{{- define "pliant.intOrShare" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ . | int64 }}{{ end }}
{{- end }}

{{/* Of every container but the agent's. */}}
{{- define "pliant.locked" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Health by HTTP: dict path, port. */}}
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

{{/*
The pool of a class: dict class, root. Without a word of its own the class takes the pool called default, else the first
one, so that another pool beside it changes nothing. A class that exists keeps what it has: Kubernetes refuses another.
*/}}
{{- define "pliant.poolOf" -}}
{{- $class := .class -}}
{{- $pools := dict -}}
{{- range .root.Values.pools }}{{ $_ := set $pools .name true }}{{ end -}}
{{- $parameters := $class.parameters | default dict -}}
{{- if or (hasKey $class "pool") (hasKey $parameters "pool") -}}
{{- $named := $class.pool | default $parameters.pool | default "" -}}
{{- if and $named $pools (not (hasKey $pools $named)) (not (lookup "pliant.io/v1alpha1" "Pool" "" $named)) -}}
{{- fail (printf "storageClasses: class %s names pool %s, which is not among pools: %s" $class.name $named (keys $pools | sortAlpha | join ", ")) -}}
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
