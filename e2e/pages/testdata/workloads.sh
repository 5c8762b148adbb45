# A chain, whose prod runs what dev has proved, and the repository of a team.
cat >>"$W/etc/agent.yaml" <<END
reportRegistry: $REGISTRY
ackMode: stored
END
wherry-agent enroll --request plant-7.request
git init --quiet -b main shop
git init --quiet --bare -b main "$W/repositories/shop.git"
git -C shop remote add origin "$W/repositories/shop.git"
git -C shop commit --quiet --allow-empty -m 'Begin the shop'
git -C shop push --quiet -u origin main
cd fleet
cat >>wherry.yaml <<END
mirrors: {"https://git.example": $W/repositories}
END
wherry rm cluster-type edge -e dev
wherry roster add ../plant-7.request --file dev/clusters.yaml
wherry new promotion fleet --chain dev --chain prod
wherry edit promotion fleet --set spec.gate.soak=0s
git add .
git commit --quiet -m 'A chain'
git push --quiet
wherry new base-repo -e dev
wherry new base-repo -e prod
git add .
git commit --quiet -m 'Pin it'
git push --quiet
wherry promote -e dev
wherry-agent once
wherry promote -e prod
