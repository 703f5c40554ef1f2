package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo says which build this is.
type versionInfo struct {
	Millbridge string `json:"millbridge"`
	Revision   string `json:"revision,omitempty"`
	Modified   bool   `json:"modified"`
	Go         string `json:"go"`
	NATSServer string `json:"nats_server,omitempty"`
	SQLite     string `json:"sqlite,omitempty"`
}

func readVersion() versionInfo {
	v := versionInfo{Millbridge: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Millbridge, v.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/nats-io/nats-server/v2":
			v.NATSServer = m.Version
		case "modernc.org/sqlite":
			v.SQLite = m.Version
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and what is built in",
		Example: `  millbridge version
  millbridge version --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if a.flags.json {
				return object(a.env.Stdout, v)
			}
			fmt.Fprintf(a.env.Stdout, "millbridge %s\n", v.Millbridge)
			for _, line := range [][2]string{{"revision", v.Revision}, {"go", v.Go}, {"nats-server", v.NATSServer}, {"sqlite driver", v.SQLite}} {
				if line[1] != "" {
					fmt.Fprintf(a.env.Stdout, "  %-14s %s\n", line[0], line[1])
				}
			}
			return nil
		},
	}
}
