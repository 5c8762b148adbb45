# The platform in the folder fleet, as git has it, with the environments dev and prod and the cluster type drone in both. The key that signs
# is beside it. The working folder is its parent.
export WHERRY_HUB_TOKEN=$(cat "$W/hub/admin.token")
umount() { :; }
sudo() { "$@"; }

# The agent of a drone of dev has its configuration where that of an installed one is.
wherry-agent() {
    case " $* " in
    *' --config '* | *' --registry '*) command wherry-agent "$@" ;;
    *) command wherry-agent "$@" --config "$W/etc/agent.yaml" ;;
    esac
}

wherry init fleet --from empty --registry "$REGISTRY" 2>&1 >/dev/null
cd fleet
cat >>wherry.yaml <<END
keys: [../cosign.pub]
signWith: [../cosign.key]
END
for environment in dev prod; do
    wherry new cluster-type drone -e $environment --label type=edge >/dev/null
done
wherry new workload hello -e dev -e prod --manifest image=registry.example/hello:1.0 >/dev/null
git init --quiet -b main
git init --quiet --bare -b main "$W/platform.git"
git remote add origin "$W/platform.git"
git add .
git commit --quiet -m 'Begin the fleet'
git push --quiet -u origin main
cd ..
cat >"$W/etc/agent.yaml" <<END
registry: $REGISTRY
keys: [$PWD/cosign.pub]
platform: fleet
environment: dev
clusterType: drone
adapter: directory
directoryRoot: $W/site
stateDir: $W/state
cluster: {name: plant-7}
END
