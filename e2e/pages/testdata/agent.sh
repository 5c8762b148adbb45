(cd fleet && wherry publish -e dev --to "$PLANT" && wherry publish -e dev)
wherry trust init --platform fleet --root-key cosign.pub --release-key cosign.pub --key cosign.key
