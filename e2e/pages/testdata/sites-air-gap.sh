cd fleet
cp ../cosign.pub .
wherry new cluster-type shop -e prod --label type=edge
sed -i '/^  manifests:/,$d' templates/plain.yaml
cat >>templates/plain.yaml <<'END'
  manifests:
    - |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ .Workload }}", namespace: "{{ .Namespace }}"}
END
sed -i 's/image: .*/text: hello/' workloads/hello.yaml
wherry publish -e prod
sed -i 's/environment: dev/environment: prod/; s/clusterType: drone/clusterType: shop/; s/plant-7}/first-box}/' "$W/etc/agent.yaml"
cat >>"$W/etc/agent.yaml" <<END
hubKey: $W/hub/hub.pub
END
wherry-agent enroll --request first-box.request
wherry hub clusters add --request first-box.request --answer first-box.answer
wherry hub access list
