package show

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatLooksLikeASecret(t *testing.T) {
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0aWxsIn0.c2lnbmF0dXJl"
	for name, c := range map[string]struct {
		key, value string
		secret     bool
	}{
		"a password":                             {"DB_PASSWORD", "hunter2", true},
		"a password with a number":               {"PASSWORD_2", "hunter2", true},
		"a password of digits":                   {"PASSWORD", "123456", true},
		"a password in one word":                 {"dbpassword", "hunter2", true},
		"a token in camel case":                  {"authToken", "abc", true},
		"the end of a path":                      {"historian.password", "abc", true},
		"a key for something":                    {"ENCRYPTION_KEY", "abc", true},
		"an API key":                             {"apiKey", "abc", true},
		"a client secret":                        {"client-secret", "abc", true},
		"a pin":                                  {"TILL_PIN", "0000", true},
		"an encoded one":                         {"token_base64", "YWJj", true},
		"a private key under any name":           {"CERT", "-----BEGIN EC PRIVATE KEY-----\nMHc…", true},
		"a JSON web token under any name":        {"GREETING", "x " + jwt, true},
		"a connection string with a key":         {"STORAGE", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==;EndpointSuffix=x", true},
		"a connection string with a password":    {"DB", "Server=db;Database=tills;User Id=till;Password=hunter2;", true},
		"a URL with a password":                  {"BROKER", "amqp://till:hunter2@broker:5672/", true},
		"a GitHub token":                         {"X", "ghp_0123456789012345678901234567890123456", true},
		"an AWS key":                             {"X", "AKIAIOSFODNN7EXAMPLE", true},
		"an Authorization header":                {"HEADER", "Bearer 0123456789abcdef0", true},
		"a shared access signature":              {"BLOB", "https://a.example/c?sv=1&sig=abcdefghijklmnop%3D", true},
		"YAML with a password in it":             {"APP", "db:\n  user: till\n  password: hunter2\n", true},
		"JSON with a password in it":             {"APP", `{"db": {"password": "hunter2"}}`, true},
		"nothing":                                {"PASSWORD", " ", false},
		"whether there is one":                   {"PASSWORD", "true", false},
		"a template that refers to another":      {"PASSWORD", "{{ .ConfigData.OTHER }}", false},
		"where the password is":                  {"PASSWORD_FILE", "/run/secrets/password", false},
		"where the secret is, by its name alone": {"secret", "/run/secrets/password", false},
		"the folder of secrets beside it":        {"secrets", "./secrets", false},
		"what its secret is called":              {"SECRET_NAME", "till", false},
		"where a token is had":                   {"TOKEN_URL", "https://login.example.com/token", false},
		"a rule for passwords":                   {"PASSWORD_MIN_LENGTH", "12", false},
		"a public key":                           {"SIGNING_PUBLIC_KEY", "abc", false},
		"a key of a table":                       {"PARTITION_KEY", "store", false},
		"a key without a name":                   {"KEY", "store", false},
		"an animal":                              {"MONKEY", "x", false},
		"a level":                                {"LOG_LEVEL", "debug", false},
		"a URL without a password":               {"API_URL", "https://api.dev.example.com:8443/till", false},
		"a digest":                               {"IMAGE", "till@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", false},
		"YAML without one":                       {"ALERTS", "- name: power\n  after: 5m\n", false},
		"a reference to a secret in YAML":        {"APP", "passwordFrom:\n  name: till\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.secret, LooksSecret(c.key, c.value))
		})
	}
}
