{{- define "labels" -}}
app.kubernetes.io/name: wherry-promoter
{{- end }}

{{- define "settings" -}}
PLATFORM: {{ .Values.platform | quote }}
WHERRY_REGISTRY: {{ .Values.registry | quote }}
{{- with .Values.hub }}
WHERRY_HUB: {{ . | quote }}
{{- end }}
{{- end }}
