{{- define "cairn.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for the names of pods, and of what is called after them. */}}
{{- define "cairn.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "cairn.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "cairn.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "cairn.headless" -}}
{{- printf "%s-headless" (include "cairn.fullname" .) }}
{{- end }}

{{- define "cairn.peerDomain" -}}
{{- printf "%s.%s.svc.%s" (include "cairn.headless" .) .Release.Namespace .Values.clusterDomain }}
{{- end }}

{{- define "cairn.selector" -}}
app.kubernetes.io/name: {{ include "cairn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cairn.labels" -}}
{{ include "cairn.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cairn.image" -}}
{{- printf "%s:%s" .Values.image.repository (default (printf "%s-nonroot" .Chart.AppVersion) .Values.image.tag) }}
{{- end }}

{{- define "cairn.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "cairn.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "cairn.clientScheme" -}}
{{- ternary "https" "http" .Values.tls.client.enabled }}
{{- end }}

{{- define "cairn.clientSecret" -}}
{{- default (printf "%s-client-tls" (include "cairn.fullname" .)) .Values.tls.client.secretName }}
{{- end }}

{{- define "cairn.peerSecret" -}}
{{- default (printf "%s-peer-tls" (include "cairn.fullname" .)) .Values.tls.peer.secretName }}
{{- end }}

{{- define "cairn.authSecret" -}}
{{- default (printf "%s-auth" (include "cairn.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{- define "cairn.authKey" -}}
{{- ternary .Values.auth.existingSecretPasswordKey "root-password" (ne .Values.auth.existingSecret "") }}
{{- end }}

{{/* The endpoints of all members, joined by commas. */}}
{{- define "cairn.endpoints" -}}
{{- $all := list }}
{{- range $pod := until (int .Values.replicaCount) }}
{{- $all = append $all (printf "%s://%s-%d.%s:%d" (include "cairn.clientScheme" $) (include "cairn.fullname" $) $pod (include "cairn.peerDomain" $) (int $.Values.service.clientPort)) }}
{{- end }}
{{- join "," $all }}
{{- end }}

{{/* What etcdctl needs to reach the members: certificates, and the user root where there are users. */}}
{{- define "cairn.ctlEnv" -}}
{{- if .Values.tls.client.enabled }}
- {name: ETCDCTL_CACERT, value: /tls/client/ca.crt}
{{- if .Values.tls.client.clientCertAuth }}
- {name: ETCDCTL_CERT, value: /tls/client/tls.crt}
- {name: ETCDCTL_KEY, value: /tls/client/tls.key}
{{- end }}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: ETCDCTL_USER, value: root}
- name: ETCDCTL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "cairn.authSecret" . }}, key: {{ include "cairn.authKey" . }}}}
{{- end }}
{{- end }}

{{/* The shell: /bin/busybox of its image, under the names of its tools, in a volume of the pod. */}}
{{- define "cairn.shellContainer" -}}
- name: shell
  image: {{ printf "%s:%s" .Values.shell.repository .Values.shell.tag }}
  imagePullPolicy: {{ .Values.shell.pullPolicy }}
  command: [/bin/busybox, sh, -c, "cp /bin/busybox /shell/ && /bin/busybox --install -s /shell && for link in /shell/*; do [ ! -L $link ] || ln -sf busybox $link; done"]
  securityContext: {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: shell, mountPath: /shell}
{{- end }}

{{- define "cairn.path" -}}
- {name: PATH, value: "/usr/local/bin:/shell"}
{{- end }}

{{/* What every script needs of its pod. */}}
{{- define "cairn.scriptMounts" -}}
- {name: shell, mountPath: /shell, readOnly: true}
- {name: scripts, mountPath: /scripts, readOnly: true}
{{- if .Values.tls.client.enabled }}
- {name: client-tls, mountPath: /tls/client, readOnly: true}
{{- end }}
{{- end }}

{{- define "cairn.scriptVolumes" -}}
- {name: shell, emptyDir: {}}
- {name: scripts, configMap: {name: {{ include "cairn.fullname" . }}-scripts}}
{{- if .Values.tls.client.enabled }}
- {name: client-tls, secret: {secretName: {{ include "cairn.clientSecret" . }}}}
{{- end }}
{{- end }}

{{/* The pod of a job, but for its containers and volumes. */}}
{{- define "cairn.jobPod" -}}
restartPolicy: Never
serviceAccountName: {{ include "cairn.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
initContainers:
  {{- include "cairn.shellContainer" . | nindent 2 }}
{{- end }}

{{- define "cairn.jobContainer" -}}
image: {{ include "cairn.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end }}
