package render

import (
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/Masterminds/sprig/v3"
)

// sprigFunctions are those of sprig, for functions here that are made of them.
var sprigFunctions = sprig.GenericFuncMap()

// chartError is a message of the chart's own, by fail or required.
type chartError string

func (e chartError) Error() string { return string(e) }

// keys and values are sorted by key, which Helm leaves to chance.
func keys(of ...map[string]any) []string {
	all := []string{}
	for _, m := range of {
		all = append(all, slices.Sorted(maps.Keys(m))...)
	}
	return all
}

func values(m map[string]any) []any {
	all := make([]any, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

func buildCustomCert(cert, key string) (certificate, error) {
	var made certificate
	for _, part := range []struct {
		to   *string
		from string
	}{{&made.Cert, cert}, {&made.Key, key}} {
		data, err := base64.StdEncoding.DecodeString(part.from)
		if err != nil {
			return certificate{}, errors.New("the certificate or its key is not base64")
		}
		*part.to = string(data)
	}
	return made, nil
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
