package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAManualPageBeginsWithTheUsage(t *testing.T) {
	page := roff(command{Path: "wherry lint", Short: "Find mistakes", Help: `Find mistakes in a platform.

Exit code 1: there are some.

Usage:
  wherry lint [PLATFORM] [flags]

Examples:
  wherry lint

Flags:
  -h, --help   help for lint
`}, "wherry")
	require.Equal(t, `.TH WHERRY-LINT 1
.SH NAME
wherry\-lint \- Find mistakes
.SH SYNOPSIS
.nf
wherry lint [PLATFORM] [flags]
.fi
.SH DESCRIPTION
Find mistakes in a platform.
.PP
Exit code 1: there are some.
.PP
.SH EXAMPLES
.nf
  wherry lint

.fi
.SH OPTIONS
.nf
  \-h, \-\-help   help for lint
.fi
.SH SEE ALSO
.BR wherry (1)
`, string(page))
}
