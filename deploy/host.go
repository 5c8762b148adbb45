package deploy

import (
	"cmp"
	"embed"
	"maps"
	"slices"
)

//go:embed systemd
var systemd embed.FS

// HostFile is a file of a host on which a part of wherry runs under systemd.
type HostFile struct {
	// Path is absolute. Files in /etc/systemd, /etc/udev, /etc/tmpfiles.d and /etc/sysusers.d are in the same place below /usr/lib where a
	// package brings them.
	Path string
	// Config tells that a person edits the file, and that nothing may replace it then.
	Config bool
	Data   []byte
}

// hostPart is a program that runs under systemd.
type hostPart struct {
	units  []string
	config string
	others map[string]string // paths, by the name in the folder systemd
	enable string            // what a person runs next
}

var hostParts = map[string]hostPart{
	"agent": {
		units:  []string{"media-wherry.mount", "wherry-agent-import.path", "wherry-agent-import.service", "wherry-agent.service"},
		config: "agent.yaml",
		others: map[string]string{"70-wherry-media.rules": "/etc/udev/rules.d/70-wherry-media.rules", "wherry-agent.tmpfiles.conf": "/etc/tmpfiles.d/wherry-agent.conf"},
		enable: "systemd-tmpfiles --create wherry-agent.conf && systemctl daemon-reload && systemctl enable --now wherry-agent",
	},
	"hub": {
		units: []string{"wherry-hub.service"}, config: "hub.env",
		others: map[string]string{"wherry-hub.sysusers.conf": "/etc/sysusers.d/wherry-hub.conf"},
		enable: "systemd-sysusers wherry-hub.conf && systemctl daemon-reload && systemctl enable --now wherry-hub",
	},
	"promoter":  {units: []string{"wherry-promote.service"}, config: "promote.env", enable: "systemctl daemon-reload && systemctl enable --now wherry-promote"},
	"publisher": {units: []string{"wherry-publish.service"}, config: "publish.env", enable: "systemctl daemon-reload && systemctl enable --now wherry-publish"},
}

// HostParts lists the parts that Host knows.
func HostParts() []string { return slices.Sorted(maps.Keys(hostParts)) }

// Host returns the files of a part, sorted by path, and the command that starts it once its configuration is written. With hostChanges the
// agent may change the host itself, as the adapters ansible and zarf do. The part has to be one of HostParts.
func Host(part string, hostChanges bool) (files []HostFile, start string) {
	p := hostParts[part]
	add := func(name, path string, config bool) {
		data, err := systemd.ReadFile("systemd/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		files = append(files, HostFile{path, config, data})
	}
	for _, unit := range p.units {
		add(unit, "/etc/systemd/system/"+unit, false)
	}
	if hostChanges {
		add("host-changes.conf", "/etc/systemd/system/wherry-agent.service.d/host-changes.conf", false)
	}
	for name, path := range p.others {
		add(name, path, false)
	}
	add(p.config, "/etc/wherry/"+p.config, true)
	slices.SortFunc(files, func(a, b HostFile) int { return cmp.Compare(a.Path, b.Path) })
	return files, p.enable
}
