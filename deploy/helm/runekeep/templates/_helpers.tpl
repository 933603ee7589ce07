{{- define "runekeep.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "runekeep.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "runekeep.labels" -}}
{{ include "runekeep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "runekeep.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "runekeep.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "runekeep.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "runekeep.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector: {matchLabels: {{ .labels | toJson }}}
{{- end }}

{{- /* The server's Pod, the same in a Deployment and in a StatefulSet. Kubernetes' own gRPC probe speaks no TLS, so the
health command asks, in the server's Pod, for the name that is on the certificate. */}}
{{- define "runekeep.serverPod" -}}
metadata:
  labels:
    {{- include "runekeep.labels" . | nindent 4 }}
    app.kubernetes.io/component: server
  annotations:
    checksum/settings: {{ include (print $.Template.BasePath "/configmap.yaml") . | sha256sum }}
    {{- with .Values.server.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "runekeep.name" . }}
  automountServiceAccountToken: false
  # The variables that it makes of Services have names like our settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .Values.server.preStopSeconds .Values.server.drainSeconds 15 }}
  securityContext:
    {{- include "runekeep.podSecurity" . | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  topologySpreadConstraints:
    {{- include "runekeep.spread" (dict "labels" (dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "server")) | nindent 4 }}
  {{- with .Values.server.nodeSelector }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  {{- with .Values.server.tolerations }}
  tolerations: {{ toJson . }}
  {{- end }}
  {{- with .Values.server.affinity }}
  affinity: {{ toJson . }}
  {{- end }}
  containers:
    - name: server
      image: {{ include "runekeep.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      securityContext:
        {{- include "runekeep.containerSecurity" . | nindent 8 }}
      env:
        - {name: RUNEKEEP_CONFIG, value: /etc/runekeep/settings.yaml}
        {{- if not .Values.embedded.enabled }}
        # An emptyDir is open to all users; the server makes a private folder in it.
        - {name: RUNEKEEP_DATA_DIR, value: /var/lib/runekeep/data}
        - name: RUNEKEEP_STORE_URL
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: store-url}}
        - name: RUNEKEEP_INDEX_API_KEY
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: index-api-key, optional: true}}
        {{- end }}
        {{- if eq .Values.server.identityMode "keys" }}
        - name: RUNEKEEP_ADMIN_KEY
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: admin-key, optional: true}}
        - name: RUNEKEEP_WORKER_KEY
          valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: worker-key}}
        {{- end }}
        - {name: RUNEKEEP_CA_FILE, value: /certificates/ca.crt}
        {{- if eq .Values.server.identityMode "mesh" }}
        # The health command shows the server's own certificate.
        - {name: RUNEKEEP_CERT_FILE, value: /certificates/tls.crt}
        - {name: RUNEKEEP_KEY_FILE, value: /certificates/tls.key}
        {{- end }}
        {{- with .Values.server.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: 7433}
        - {name: internal, containerPort: 7434}
        - {name: metrics, containerPort: {{ .Values.metrics.port }}}
      startupProbe:
        exec: &health {command: [runekeep, health, --address, "localhost:7433", --server-name, {{ include "runekeep.name" . | quote }}]}
        periodSeconds: 3
        timeoutSeconds: 10
        # Twelve minutes: what migrates a store may take ten, and must not be ended half way.
        failureThreshold: 240
      readinessProbe:
        exec:
          command: [runekeep, health, --address, "localhost:7433", --server-name, {{ include "runekeep.name" . | quote }}, --service, runekeep.v1.SessionService]
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: 2
      livenessProbe:
        exec: *health
        periodSeconds: 20
        timeoutSeconds: 15
        failureThreshold: 4
      lifecycle:
        preStop: {sleep: {seconds: {{ .Values.server.preStopSeconds }}}}
      resources:
        {{- toYaml .Values.server.resources | nindent 8 }}
      volumeMounts:
        - {name: settings, mountPath: /etc/runekeep, readOnly: true}
        - {name: certificates, mountPath: /certificates, readOnly: true}
        - {name: data, mountPath: /var/lib/runekeep}
        - {name: tmp, mountPath: /tmp}
        {{- if and .Values.blobs.claim (not .Values.embedded.enabled) }}
        - {name: blobs, mountPath: /var/lib/runekeep-blobs}
        {{- end }}
  volumes:
    - name: settings
      configMap: {name: {{ include "runekeep.name" . }}}
    - name: certificates
      projected:
        defaultMode: 0440
        sources:
          - secret: {name: {{ .Values.tls.secret }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
          - secret: {name: {{ .Values.tls.caSecret | default .Values.tls.secret }}, items: [{key: ca.crt, path: ca.crt}]}
    - name: tmp
      emptyDir: {sizeLimit: {{ .Values.server.tmpSize }}}
    {{- if not .Values.embedded.enabled }}
    - name: data
      emptyDir: {}
    {{- if .Values.blobs.claim }}
    - name: blobs
      persistentVolumeClaim: {claimName: {{ .Values.blobs.claim }}}
    {{- end }}
    {{- end }}
{{- end }}
