// Package flags holds the flags that several commands share: plain structs that add themselves to a command and return
// values for the packages below. Begin with Source for a platform, Registry for a location, Signers for keys that sign,
// and Trust for keys that must have signed.
//
// Errors about a platform or a registry get their exit codes and hints here: from SourceFailure, RegistryFailure and
// ReferenceFailure.
package flags
