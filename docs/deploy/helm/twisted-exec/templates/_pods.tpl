{{- /* Labels that select the pods of a program, by its name. */ -}}
{{- define "twisted-exec.labels" -}}
{app.kubernetes.io/name: {{ . }}}
{{- end }}

{{- /* A dict: groups, the supplemental groups of a pod whose volumes are the node's. */ -}}
{{- define "twisted-exec.pod-security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{- if .groups }}
supplementalGroups: {{ toJson .groups }}
{{- else }}
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "twisted-exec.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Optional fields of a pod. A list: root context, values of the program. */ -}}
{{- define "twisted-exec.scheduling" -}}
{{- $root := index . 0 }}
{{- $own := index . 1 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "twisted-exec.image" -}}
image: {{ .Values.image | quote }}
{{- with .Values.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* A list of options, from the value extraArgs. */ -}}
{{- define "twisted-exec.extra-args" -}}
{{- range . }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "twisted-exec.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{ include "twisted-exec.labels" . }}
{{- end }}

{{- /* A dict: port, https or health, and started, the path of the startup probe, if there is one. */ -}}
{{- define "twisted-exec.probes" -}}
{{- $request := printf "port: %s" .port }}
{{- if eq .port "https" }}
{{- $request = "port: https, scheme: HTTPS" }}
{{- end }}
{{- with .started }}
startupProbe:
  httpGet: {path: {{ . }}, {{ $request }}}
  periodSeconds: 2
  failureThreshold: 60
{{- end }}
readinessProbe:
  httpGet: {path: /readyz, {{ $request }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {path: /livez, {{ $request }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- /* A drained node waits until another replica serves. A dict: name, namespace, replicas. */ -}}
{{- define "twisted-exec.disruption" -}}
{{- if gt (int .replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
spec:
  minAvailable: 1
  selector:
    matchLabels: {{ include "twisted-exec.labels" .name }}
{{- end }}
{{- end }}

{{- /* A namespace of the chart. It stays when the release is uninstalled, with your Secrets. A dict: name, standard. */ -}}
{{- define "twisted-exec.namespace" -}}
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .name }}
  annotations: {helm.sh/resource-policy: keep}
  labels:
    pod-security.kubernetes.io/enforce: {{ .standard }}
    {{- if eq .standard "restricted" }}
    pod-security.kubernetes.io/warn: restricted
    {{- end }}
{{- end }}
