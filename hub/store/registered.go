package store

// The bodies of requests and answers about clusters and enrollment tokens.
type (
	// NewCluster is the body that registers a cluster.
	NewCluster struct {
		Identity
		// Key is the public half of the agent's report key, in PEM.
		Key string `json:"key,omitempty"`
		// Request is the envelope of the agent's request for enrollment, in place of Key, whose answer is wanted.
		Request []byte `json:"request,omitempty"`
		// Reporting is "none" for a cluster that sends no reports: it has no Key.
		Reporting string `json:"reporting,omitempty"`
		// ExpectedSeconds is the longest usual time between two reports; zero means the registered one, or an hour.
		ExpectedSeconds int64 `json:"expectedSeconds,omitempty"`
		// Replace allows to change what is registered for the uid, its key included.
		Replace bool `json:"replace,omitempty"`
	}
	// AddedCluster answers a NewCluster. Changed is false if it was registered already.
	AddedCluster struct {
		Cluster Registration `json:"cluster"`
		Changed bool         `json:"changed"`
		// Answer is the hub's signed answer to Request, an envelope.
		Answer []byte `json:"answer,omitempty"`
	}
	// RegistrationList is what is registered, and what was retired, by name.
	RegistrationList struct {
		Clusters []Registration `json:"clusters"`
	}
	// TokenList is the enrollment tokens, newest first.
	TokenList struct {
		Tokens []Token `json:"tokens"`
	}
	// CreatedToken answers with a new enrollment token, whose secret is told only once.
	CreatedToken struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
)
