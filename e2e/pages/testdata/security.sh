for name in root-anna good stolen; do wherry keys generate -o $name; done
wherry trust init --platform fleet --root-key root-anna.pub --release-key good.pub --release-key stolen.pub --release-threshold 1 --key root-anna.key
wherry trust publish trust.v1.json --to "$PLANT"
