{{- define "labels" -}}
app.kubernetes.io/name: wherry-hub
{{- end }}
