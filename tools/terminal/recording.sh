export COSIGN_PASSWORD=change-me
wherry init fleet --from empty --registry oci-layout:registry --keys
cd fleet
wherry new workload hello -e dev --manifest image=registry.example/hello:1.0
wherry new config greeting --label workload=hello --data GREETING=hello
wherry publish
cat > ../agent.yaml <<END
registry: oci-layout:$PWD/../registry
keys: [$PWD/cosign.pub]
platform: fleet
environment: dev
clusterType: edge
adapter: directory
directoryRoot: $PWD/../site
stateDir: $PWD/../state
cluster: {name: plant-7}
END
wherry-agent once --config ../agent.yaml
# shown
wherry edit config greeting --set 'data.GREETING=good morning'
wherry plan
wherry publish
wherry-agent once --config ../agent.yaml 2>/dev/null
echo 'GREETING: nonsense' > ../site/hello-dev/platform-config.yaml   # on the machine
wherry-agent once --config ../agent.yaml 2>/dev/null
