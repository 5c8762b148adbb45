cd fleet
cp ../cosign.pub .
wherry publish
wherry new config greeting --data GREETING=hello
wherry publish
