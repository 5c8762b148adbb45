# A fleet whose metrics are scraped: examples/retail with a promoter, a hub that follows the registry, and three clusters of
# dev. site-1 is compliant; site-2 trusts somebody else, so that it rejects the release; site-3 was never heard of. The addresses
# are in the files hub-url, promoter-url, agent-1.url and agent-2.url; the processes end with the group of this shell.
set -eu
export COSIGN_PASSWORD=secret HOME="$PWD/home"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
tries=0
again() { sleep 0.05; tries=$((tries + 1)); test $tries -lt 1200 || { echo "gave up waiting for $*" >&2; exit 1; }; }

# What a version is of: a repository of an app team, pinned to a commit.
git init -q -b main menu
echo 'kind: Deployment' >menu/deployment.yaml
git -C menu add --all
git -C menu commit -q -m one
mkdir repos
git clone -q --bare menu repos/menu.git

cp -R "$EXAMPLES/retail/platform" chain
rm chain/wherry.yaml chain/base/registrations.yaml
git init -q --bare -b main chain.git
sed -i "s|https://git.example/platform|file://$PWD/chain.git|" chain/.environments/*.yaml chain/*/base-repo.yaml
sed -i 's|manifests: .*|manifests: {repo: "https://git.example/menu", branch: main, path: .}|' chain/base/workloads.yaml
sed -i 's|  name: shop$|  name: shop\n  annotations: {wherry.dev/pin: commit}|' chain/dev/types.yaml
cat >chain/base/platform.yaml <<'END'
apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: coffee-chain}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: {{ .Namespace }}}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: plain}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: source.toolkit.fluxcd.io/v1
      kind: GitRepository
      metadata: {name: {{ .DeploymentTargetName }}, namespace: flux-system}
      spec: {interval: 1m, url: {{ .Manifests.repo }}, ref: {branch: {{ .Manifests.branch }}}}
END
cd chain
git init -q -b main
git add --all
git commit -q -m 'Begin the chain'
sed -i "s/commit: .*/commit: $(git rev-parse HEAD)/" */base-repo.yaml
git commit -q -a -m 'Pin the first commit'
git remote add origin "file://$PWD/../chain.git"
git push -q -u origin main
cd ..

wherry keys generate -o cosign
wherry keys generate -o root
wherry keys generate -o other
wherry trust init --platform coffee-chain --root-key root.pub --release-key cosign.pub --key root.key -o trust.v1.json
wherry trust publish trust.v1.json --to "oci-layout:$PWD/registry"
export WHERRY_REGISTRY="oci-layout:$PWD/registry"

# The hub knows a cluster before it looks for the releases of its environment. It never hears of this one.
once='wherry-agent once --wait 0 --platform coffee-chain --environment dev --cluster-type shop --adapter directory'
$once --registry "$WHERRY_REGISTRY" --trust trust.v1.json --directory-root sites/site-3 --state-dir state/site-3 --cluster-name site-3 >/dev/null 2>&1 || true
wherry-agent status --state-dir state/site-3 -o json | wherry hub clusters add --from - --data hub
wherry hub serve --data hub --addr 127.0.0.1:0 --watch "$WHERRY_REGISTRY" --watch-interval 1s --trust trust.v1.json >hub-url 2>hub.log &
until test -s hub-url; do again the hub; done
wherry hub access create prometheus --role metrics --expires 90d --data hub >metrics.token

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >webhook.secret
wherry promote chain --watch --key cosign.key --trust trust.v1.json --mirror "https://git.example/=$PWD/repos/" --hub "$(cat hub-url)" --token-file hub/admin.token \
    --webhook 127.0.0.1:0 --webhook-secret-file webhook.secret >promoter.out 2>promoter.log &
until grep -q 'dev: ' promoter.out; do again the promoter; done
sed -n 's|.*webhooks at \(http://[^/]*\)/hook.*|\1|p' promoter.log >promoter-url

agent() { # NAME PUBLIC-KEY PORT
    wherry-agent run --registry "$WHERRY_REGISTRY" $2 --platform coffee-chain --environment dev --cluster-type shop \
        --adapter directory --directory-root "sites/$1" --state-dir "state/$1" --cluster-name "$1" --hub "$(cat hub-url)" --hub-key hub/hub.pub --interval 1s \
        --listen "127.0.0.1:$3" >"$1.out" 2>"$1.log" &
    echo "http://127.0.0.1:$3" >"$1.url"
    until wherry-agent status --state-dir "state/$1" -o json >"$1.json" 2>/dev/null; do again "$1"; done
    wherry hub clusters add --from "$1.json" --data hub
}
agent agent-1 '--trust trust.v1.json' "$PORT1"
agent agent-2 '--key other.pub' "$PORT2"
