package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestOf(t *testing.T) {
	for text, want := range map[string]Run{
		"https://github.com/contoso/gitops/pull/12":                             {URL: "https://github.com/contoso/gitops", Kind: GitHub, Number: 12},
		"https://github.com/contoso/gitops/pull/12/files?w=1#diff":              {URL: "https://github.com/contoso/gitops", Kind: GitHub, Number: 12},
		"https://gitlab.example.com/a/b/gitops/-/merge_requests/3/diffs":        {URL: "https://gitlab.example.com/a/b/gitops", Kind: GitLab, Number: 3},
		"https://codeberg.org/contoso/gitops/pulls/4":                           {URL: "https://codeberg.org/contoso/gitops", Kind: Gitea, Number: 4},
		"https://dev.azure.com/org/My%20Project/_git/gitops/pullrequest/5?_a=x": {URL: "https://dev.azure.com/org/My%20Project/_git/gitops", Kind: Azure, Number: 5},
	} {
		got, err := RequestOf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		_, err = PlaceOf(got.URL, got.Kind)
		require.NoError(t, err, text)
	}
	for text, want := range map[string]string{
		"":                                      "not the URL of a change request",
		"auto ":                                 "not the URL of a change request",
		"ssh://git@github.com/contoso/x/pull/1": "not the URL of a change request",
		"https://me:hunter2@github.com/a/b/pull/1":        "credentials do not belong into the URL of a change request",
		"https://github.com/contoso/gitops?token=hunter2": "https://github.com/contoso/gitops is not the URL of a change request",
		"https://github.com/contoso/gitops/pull/0":        "https://github.com/contoso/gitops/pull/0 is not the URL of a change request",
	} {
		_, err := RequestOf(text)
		require.EqualError(t, err, want, text)
	}
}
