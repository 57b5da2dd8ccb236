{{- define "raven.labels" -}}
app.kubernetes.io/name: raven
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "raven.nodeLabels" -}}
app.kubernetes.io/name: raven-node
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "raven.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "raven.secret" -}}
{{ .Values.credentials.existingSecret | default .Release.Name }}
{{- end }}

{{- /* An INI file of sections, of which each is a map of options. Lists become what oslo reads: words with commas. */}}
{{- define "raven.ini" -}}
{{- range $section, $options := . }}
[{{ $section }}]
{{- range $name, $value := $options }}
{{- if kindIs "slice" $value }}
{{ $name }} = {{ join "," $value }}
{{- else if kindIs "float64" $value }}
{{ $name }} = {{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- else }}
{{ $name }} = {{ $value }}
{{- end }}
{{- end }}
{{ end }}
{{- end }}

{{- define "raven.apiServer" -}}
{{ required "apiServer is not set: give the URL of the API server itself, for example --set apiServer=https://192.0.2.10:6443" .Values.apiServer }}
{{- end }}

{{- define "raven.config" -}}
{{- $auth := required "authURL is not set: give the URL of Keystone, for example --set authURL=https://keystone.example.org:5000/v3" .Values.authURL }}
{{- $own := dict
  "DEFAULT" (dict "graceful_shutdown_timeout" 60)
  "kubernetes" (dict "api_root" (include "raven.apiServer" .))
  "raven" (dict "drivers" .Values.drivers "runtime_dir" "/run/raven")
  "neutron" (dict "auth_url" $auth) }}
{{- include "raven.ini" (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}

{{- define "raven.nodeConfig" -}}
{{- $own := dict
  "kubernetes" (dict "api_root" (include "raven.apiServer" .))
  "node" (dict "ovs_connection" "unix:/run/openvswitch/db.sock")
  "health_server" (dict "port" 8083)
  "prometheus_exporter" (dict "port" 9655) }}
{{- include "raven.ini" (mergeOverwrite $own (deepCopy .Values.node.config)) }}
{{- end }}
