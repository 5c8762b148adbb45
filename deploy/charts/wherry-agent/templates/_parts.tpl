{{- define "labels" -}}
app.kubernetes.io/name: wherry-agent
{{- end }}

{{- /* The roles of the agent have the namespace in their names, so that two agents can share a cluster. */}}
{{- define "role" -}}
wherry-agent{{ if ne .Release.Namespace "wherry-system" }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- define "files" -}}
{{ merge (dict "agent.yaml" (printf "%s\n" (toYaml .Values.config))) .Values.files | toYaml }}
{{- end }}

{{- /* The port of the agent's endpoint, if it has one. */}}
{{- define "port" -}}
{{ dig "serve" "address" "" .Values.config | splitList ":" | last }}
{{- end }}

{{- /* Whether a folder of the node is mounted, which Pod Security calls privileged. */}}
{{- define "privileged" -}}
{{ if or .Values.state.hostPath (dig "veto" "file" "" .Values.config) }}true{{ end }}
{{- end }}
