// Package flags holds the flags that several commands share: plain structs that add themselves to a command and return
// values for the packages below. Begin with Source for a platform, Registry for a location, Signers for keys that sign,
// and Trust for keys that must have signed. Errors about a platform and its settings are returned as they are: package failure
// knows their exit codes and hints.
package flags
