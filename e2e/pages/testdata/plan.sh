cd fleet
wherry new cluster-type shop -e dev --label type=edge
cat >workloads/till.yaml <<END
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: till}
spec:
  deploymentTargets:
    - {name: test, environment: dev, manifests: {image: "registry.example/till:2.4"}}
END
wherry new config logging --data LOG_LEVEL=debug
