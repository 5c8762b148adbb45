package browser

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var media = flag.String("media", "", "write pictures of the sample fleet's pages into this folder, for the documentation")

// shown are the pages in the documentation, and how much of each is seen, in pixels.
var shown = []struct {
	name, path, follow string
	height             int64
}{
	{"overview", "/", "", 860},
	{"workloads", "/workloads", "", 560},
	{"clusters", "/clusters?environment=prod", "", 700},
	{"cluster", "/clusters?state=failed&environment=prod", `//main//tbody//th//a`, 760},
	{"changes", "/changes?environment=prod", "", 620},
	{"environments", "/environments/prod", "", 760},
}

// Pictures are drawn, whether or not a folder is to have them, and together they are small.
func TestPicturesForTheDocumentation(t *testing.T) {
	p := newTab(t, chromium(t), serve(t, t.TempDir(), "--demo"), "")
	all := 0
	for _, s := range shown {
		p.open(s.path)
		if s.follow != "" {
			p.follow(s.follow)
		}
		p.window("light", 1300, s.height)
		picture := fewColors(t, run(p, chromedp.CaptureScreenshot()))
		all += len(picture)
		if *media != "" {
			require.NoError(t, os.WriteFile(filepath.Join(*media, s.name+".png"), picture, 0o644))
		}
	}
	require.Less(t, all, 400<<10)
}

// fewColors returns a PNG with the 256 most frequent colours of another, which makes it half as large.
func fewColors(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	b := from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	count := map[color.RGBA]int{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	byCount := func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), bytes.Compare([]byte{a.R, a.G, a.B}, []byte{b.R, b.G, b.B}))
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), byCount) {
		if palette = append(palette, c); len(palette) == 256 {
			break
		}
	}
	to, index := image.NewPaletted(b, palette), map[color.RGBA]uint8{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := at(x, y)
			if _, known := index[c]; !known {
				index[c] = uint8(palette.Index(c))
			}
			to.SetColorIndex(x, y, index[c])
		}
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}

// The card that operators print is one sheet of A4.
func TestTheOperatorCardIsOneSheet(t *testing.T) {
	p := newTab(t, chromium(t), serve(t, t.TempDir(), "--demo"), "")
	p.open("/docs/operator-card.html")
	printed := call(p, page.PrintToPDF, page.PrintToPDFParams{PreferCSSPageSize: new(true)}).Data
	require.Equal(t, []string{"/Count 1"}, regexp.MustCompile(`/Count \d+`).FindAllString(string(printed), -1))
	require.Regexp(t, `/MediaBox \[0 0 59[45][.0-9]* 84[12][.0-9]*\]`, string(printed))
	if *media != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*media, "operator-card.pdf"), printed, 0o644))
	}
}
