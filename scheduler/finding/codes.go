package finding

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// The codes of findings. A code never changes its meaning, and one that is given up is not used again: people name them
// in --ignore, and in the findings that their code scanning has dismissed. The letter is the severity (error, warning,
// note), the hundreds are the subject. codes.yaml has the text about each; a test holds the two together.
const (
	// YAML and structure.
	CodeSyntax       = "E1001"
	CodeType         = "E1002"
	CodeDuplicateKey = "E1003"
	CodeTooLarge     = "E1004"
	CodeObjectName   = "E1005"
	CodeDefinedTwice = "E1006"
	CodeUnknownField = "W1007"
	CodeUnknownKind  = "W1008"
	CodeForeignKind  = "N1009"
	CodeNoObject     = "N1010"
	CodeNotLabelled  = "N1011"
	CodeNotRegular   = "N1012"
	CodeNotATeams    = "N1013"
	CodeNoTargetName = "E1014"
	CodeWorkspace    = "E1015"
	CodeLimit        = "E1016"
	CodeRings        = "E1018"
	CodeTenant       = "E1019"
	CodePromotion    = "E1020"
	CodeUnreachable  = "E1021"
	CodeNearKind     = "E1022"
	CodeUnpinnedBase = "W1023"
	CodeContentAny   = "N1024"

	// References between objects.
	CodeNoTemplate         = "E1101"
	CodeNoRegistration     = "E1102"
	CodeNoWorkspace        = "W1104"
	CodeNoEnvironment      = "W1105"
	CodeEnvironmentCase    = "W1106"
	CodeNoSuchTarget       = "W1107"
	CodeUnusedTemplate     = "W1110"
	CodeUnusedConfigMap    = "W1111"
	CodeUnusedConfigSchema = "W1112"
	CodeEmptyClusterType   = "N1113"
	CodeUnusedWorkspace    = "W1114"
	CodeUnreadSource       = "E1115"
	CodeClusterOfNoType    = "W1116"
	CodeClusterTwice       = "W1117"

	CodeWorkspaceNotAllowed = "E1118"
	CodeUnboundWorkspace    = "W1119"
	CodeTemplateType        = "W1120"

	// Values.
	CodeTextReadAsMap   = "W1201"
	CodeKeyReadAsBool   = "W1202"
	CodeValueChanged    = "W1203"
	CodeUnnamedMerge    = "W1204"
	CodeGeneralWins     = "W1205"
	CodeNoTextInConfig  = "E1206"
	CodeSecret          = "W1207"
	CodeSchemaViolation = "E1208"
	CodeSchema          = "E1209"
	CodeCycleOfValues   = "E1210"
	CodeClusterValue    = "W1211"
	CodeMissingKey      = "W1212"
	CodeSchemaCost      = "E1213"

	// Policies, annotations and environments.
	CodeNoClusterType      = "W1301"
	CodeNoTarget           = "N1302"
	CodeSelector           = "E1303"
	CodeUnknownAnnotation  = "W1304"
	CodeAnnotationValue    = "E1305"
	CodeUnknownEnvironment = "E1306"
	CodeBaseCommitUnused   = "W1307"
	CodeNoClusterTypes     = "W1308"
	CodeNoDigest           = "E1309"
	CodeSelectorField      = "E1310"
	CodeOtherEnvironment   = "E1311"
	CodeUnproved           = "W1312"
	CodePath               = "E1320"
	CodeNobodyUnder        = "W1321"

	// Names.
	CodeNamesClash    = "E1401"
	CodeLongNamespace = "E1402"

	// Dependencies.
	CodeDependsOnSyntax  = "E1501"
	CodeDependencyAbsent = "E1502"
	CodeDependencyCycle  = "E1503"
	CodeDependencyLater  = "W1504"

	// Rendered files.
	CodeNotRendered     = "E1601"
	CodeRenderedSyntax  = "E1602"
	CodeNoKubeObject    = "E1603"
	CodeKubeName        = "E1604"
	CodeObjectTwice     = "E1605"
	CodeObjectShared    = "W1606"
	CodeFluxVersion     = "W1607"
	CodeHealthOfNothing = "E1608"
	CodeRefusedObject   = "E1609"
	CodeTooManyForAgent = "E1610"

	// References to artifacts, and embedded content.
	CodeMovingReference = "N1701"
	CodeReleaseValues   = "N1702"
	CodeReleaseRender   = "W1703"
	CodeNeedsAgent      = "N1704"
	CodeNotEmbedded     = "E1705"
	CodeNotCarried      = "E1706"
	CodeNotPinned       = "E1707"
	CodeImageMissed     = "W1708"
	CodeLookup          = "N1709"
	CodeSchemaElsewhere = "W1710"
	CodeFluxUnset       = "W1711"
	CodeFluxElsewhere   = "N1712"

	// Checks of the platform.
	CodeCheck           = "E1801"
	CodeCheckFailed     = "E1802"
	CodeCheckWarned     = "W1803"
	CodeCheckEvaluation = "E1804"
	CodePlanCheck       = "E1805"
	CodeUnusedCheck     = "W1806"

	// Site values.
	CodeSiteSchema       = "E1901"
	CodeSiteValue        = "E1902"
	CodeSiteKey          = "E1903"
	CodeSiteReference    = "E1904"
	CodeUnusedSiteValues = "W1905"
	CodeSiteSecret       = "W1906"
)

// CodeEmptyRegistration is the code of a WorkloadRegistration whose source holds no Workload. Without it the source may
// not have been readable.
const CodeEmptyRegistration = "W1103"

// Explanation is the long text about a code.
type Explanation struct {
	Code  string `yaml:"code" json:"code"`
	Title string `yaml:"title" json:"title"` // continues the code: "W1203: a value that …"
	Text  string `yaml:"text" json:"text"`   // why it matters
	// Example shows the mistake as it stands in a file. It may be empty.
	Example string `yaml:"example" json:"example,omitempty"`
	Remedy  string `yaml:"remedy" json:"remedy"`
}

// Severity is [SeverityError], [SeverityWarning] or [SeverityNote].
func (e Explanation) Severity() string {
	return map[byte]string{'E': SeverityError, 'W': SeverityWarning, 'N': SeverityNote}[e.Code[0]]
}

//go:embed codes.yaml
var codesFile []byte

// Explanations lists the explanations of all codes, sorted by number. The caller must not change the list.
var Explanations = sync.OnceValue(func() []Explanation {
	var all []Explanation
	d := yaml.NewDecoder(bytes.NewReader(codesFile))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		panic("codes.yaml: " + err.Error()) // a test reads it
	}
	return all
})

// Explain returns the explanation of a code, in upper or lower case. It returns false if there is no such code.
func Explain(code string) (Explanation, bool) {
	all := Explanations()
	i := slices.IndexFunc(all, func(e Explanation) bool { return strings.EqualFold(e.Code, code) })
	if i < 0 {
		return Explanation{}, false
	}
	return all[i], true
}
