package hubapi

import "net/http"

// Code is a hub's reason to refuse a report or a request. Agents and scripts branch on it.
type Code string

// The codes of reports, in Rejection.Reason. Where no report of a request was signed by a key of the cluster, they
// are also the code of an Error.
const (
	CodeUnknownCluster Code = "UnknownCluster" // no such uid is registered
	CodeUnknownKey     Code = "UnknownKey"     // the key is not registered for the cluster, or revoked
	CodeBadSignature   Code = "BadSignature"   // the envelope names a registered key whose signature is not valid
	CodeWrongCluster   Code = "WrongCluster"   // the report is of another cluster than the request's path
	CodeBadReport      Code = "BadReport"      // no envelope of a report, or values out of bounds
	CodeTooLarge       Code = "TooLarge"       // also of a request
	CodeConflict       Code = "Conflict"       // another report with the same incarnation and seq is stored
	CodeKeyReplaced    Code = "KeyReplaced"    // the cluster has a newer key, which should have signed the report
	CodeRetired        Code = "Retired"        // the cluster was retired
)

// The codes of requests as a whole.
const (
	CodeBadRequest  Code = "BadRequest"
	CodeBusy        Code = "Busy"        // too many requests at once
	CodeOverQuota   Code = "OverQuota"   // the cluster sends more than its pace or its quota allow
	CodeTooSlow     Code = "TooSlow"     // the body did not arrive
	CodeWrongHost   Code = "WrongHost"   // a hub on loopback was asked for by another machine's name
	CodeUnavailable Code = "Unavailable" // the hub cannot read or write now
)

// The codes of requests of people and machines that ask about the fleet, or change what is registered.
const (
	CodeUnauthenticated Code = "Unauthenticated" // no access token, or one that is not valid
	CodeForbidden       Code = "Forbidden"       // the token's role or scope does not allow it
	CodeNotFound        Code = "NotFound"        // there is no such thing, or it is outside the token's scope
	CodeUnknownName     Code = "UnknownName"     // a name in the query is not known
	CodeForgotten       Code = "Forgotten"       // it is older than what the hub keeps
	CodeUntrusted       Code = "Untrusted"       // releases whose signatures the hub does not trust
)

// The codes of requests for enrollment, beside CodeRetired, CodeKeyReplaced and some above.
const (
	CodeBadToken     Code = "BadToken" // there is no such token, or its key has not signed
	CodeTokenExpired Code = "TokenExpired"
	CodeTokenUsed    Code = "TokenUsed"
	CodeTokenRevoked Code = "TokenRevoked"
	CodeWrongScope   Code = "WrongScope"        // the token is for another cluster type, environment or ring
	CodeWrongHub     Code = "WrongHub"          // the request is for another hub
	CodeExists       Code = "AlreadyRegistered" // uid, name or key belong to another registration
)

// CodeSharedIdentity occurs in IdentityHint only: two agents have the same key and uid.
const CodeSharedIdentity Code = "SharedIdentity"

// Status returns the HTTP status of an Error with this code. Codes that this version does not know are refusals.
func (c Code) Status() int {
	switch c {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodeNotFound, CodeUnknownName:
		return http.StatusNotFound
	case CodeForgotten:
		return http.StatusGone
	case CodeTooSlow:
		return http.StatusRequestTimeout
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeWrongHost:
		return http.StatusMisdirectedRequest
	case CodeBusy, CodeOverQuota:
		return http.StatusTooManyRequests
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// Permanent reports whether the hub would refuse the same report again.
func (c Code) Permanent() bool { return c != CodeUnknownCluster && c != CodeUnknownKey }

// Untrusted reports whether the code means that no key in force for the cluster vouches for the report.
func (c Code) Untrusted() bool {
	switch c {
	case CodeUnknownCluster, CodeUnknownKey, CodeBadSignature, CodeWrongCluster, CodeKeyReplaced, CodeRetired:
		return true
	}
	return false
}
