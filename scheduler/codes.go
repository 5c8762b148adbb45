package scheduler

import (
	"errors"
	"strings"
)

// The codes of findings. A code never changes its meaning, and one that is given up is not used again:
// people name them in --ignore and in what their code scanning has dismissed. The letter is how bad it is
// (error, warning, note), the hundreds are what it is about. "wherry explain" has the long form of each;
// a test holds the two together.
const (
	// YAML and structure.
	codeSyntax       = "E1001"
	codeType         = "E1002"
	codeDuplicateKey = "E1003"
	codeTooLarge     = "E1004"
	codeObjectName   = "E1005"
	codeDefinedTwice = "E1006"
	codeUnknownField = "W1007"
	codeUnknownKind  = "W1008"
	codeForeignKind  = "N1009"
	codeNoObject     = "N1010"
	codeNotLabelled  = "N1011"
	codeNotRegular   = "N1012"
	codeNotATeams    = "N1013"
	codeNoTargetName = "E1014"
	codeWorkspace    = "E1015"
	codeLimit        = "E1016"
	codeRings        = "E1018"

	// References between objects.
	codeNoTemplate         = "E1101"
	codeNoRegistration     = "E1102"
	codeNoWorkspace        = "W1104"
	codeNoEnvironment      = "W1105"
	codeEnvironmentCase    = "W1106"
	codeNoSuchTarget       = "W1107"
	codeUnusedTemplate     = "W1110"
	codeUnusedConfigMap    = "W1111"
	codeUnusedConfigSchema = "W1112"
	codeEmptyClusterType   = "N1113"
	codeUnusedWorkspace    = "W1114"
	codeClusterOfNoType    = "W1116"
	codeClusterTwice       = "W1117"

	// Values.
	codeTextReadAsMap   = "W1201"
	codeKeyReadAsBool   = "W1202"
	codeValueChanged    = "W1203"
	codeUnnamedMerge    = "W1204"
	codeGeneralWins     = "W1205"
	codeNoTextInConfig  = "E1206"
	codeSecret          = "W1207"
	codeSchemaViolation = "E1208"
	codeSchema          = "E1209"
	codeCycleOfValues   = "E1210"
	codeClusterValue    = "W1211"
	codeMissingKey      = "W1212"
	codeSchemaCost      = "E1213"

	// Policies, annotations and environments.
	codeNoClusterType     = "W1301"
	codeNoTarget          = "N1302"
	codeSelector          = "E1303"
	codeUnknownAnnotation = "W1304"
	codeAnnotationValue   = "E1305"
	codeNoClusterTypes    = "W1308"
	codeNoDigest          = "E1309"
	codeSelectorField     = "E1310"

	// Names.
	codeNamesClash    = "E1401"
	codeLongNamespace = "E1402"

	// Dependencies.
	codeDependsOnSyntax  = "E1501"
	codeDependencyAbsent = "E1502"
	codeDependencyCycle  = "E1503"
	codeDependencyLater  = "W1504"

	// What is rendered.
	codeNotRendered    = "E1601"
	codeRenderedSyntax = "E1602"
	codeNoKubeObject   = "E1603"
	codeKubeName       = "E1604"
	codeObjectTwice    = "E1605"
	codeObjectShared   = "W1606"
	codeFluxVersion    = "W1607"

	codeHealthOfNothing = "E1608"
)

// CodeEmptyRegistration is of a WorkloadRegistration without a Workload, which there may be where its
// source could not be read.
const CodeEmptyRegistration = "W1103"

// The severities of findings.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
	SeverityNote    = "note"
)

// Severity is [SeverityError], [SeverityWarning] or [SeverityNote].
func (f Finding) Severity() string {
	switch {
	case strings.HasPrefix(f.Code, "E"):
		return SeverityError
	case f.Note:
		return SeverityNote
	default:
		return SeverityWarning
	}
}

// finding makes a Finding of which the code says how bad it is.
func finding(code string, at Position, hint, format string, args ...any) Finding {
	return Finding{Code: code, Position: at, Note: strings.HasPrefix(code, "N"), Message: sentence(format, args...), Hint: hint}
}

// coded gives a mistake its code.
func coded(code string, err error) error {
	var input *InputError
	if errors.As(err, &input) {
		input.Code = code
	}
	return err
}

// FindingsIn lists the mistakes in an error that [Model.Load] or [Model.Render] has returned, or that a
// failure holds. An error that holds none is no finding of the input, and gives none.
func FindingsIn(err error) []Finding {
	switch e := err.(type) { // it walks the tree itself
	case *InputError:
		return []Finding{{Code: e.Code, Position: e.Position, Column: e.Column, Message: e.Message, Hint: e.Hint}}
	case interface{ Unwrap() []error }:
		var all []Finding
		for _, inner := range e.Unwrap() {
			all = append(all, FindingsIn(inner)...)
		}
		return all
	case interface{ Unwrap() error }:
		inner := e.Unwrap()
		all := FindingsIn(inner)
		if inner == nil {
			return all
		}
		if before, ok := strings.CutSuffix(err.Error(), inner.Error()); ok {
			for i := range all {
				all[i].Message = before + all[i].Message
			}
		}
		return all
	}
	return nil
}
