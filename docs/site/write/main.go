// Command write writes the documentation as a web site into the folder that its argument names.
package main

import (
	"fmt"
	"os"

	"github.com/wherry-dev/wherry/docs/site"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write FOLDER")
		os.Exit(2)
	}
	if err := site.Write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(1)
	}
}
