{{/* The objects of a file that kustomize reads too, in the release's namespace. With `scoped`, the server is bound in each
of .Values.namespaces only, where these are given. */}}
{{- define "objects" }}
{{- $namespaces := ternary .root.Values.namespaces list (default false .scoped) }}
{{- $text := .root.Files.Get (print "manifests/" .file) | replace "namespace: trainjob-visibility" (print "namespace: " .root.Release.Namespace) }}
{{- range $document := regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml $document }}
{{- if and $namespaces (eq $object.kind "ClusterRoleBinding") (hasPrefix "trainjob-visibility:" $object.roleRef.name) }}
{{- range $namespaces }}
---
{{ toYaml (merge (dict "kind" "RoleBinding" "metadata" (merge (dict "namespace" .) $object.metadata)) $object) }}
{{- end }}
{{- else }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: trainjob-visibility
{{- end }}
