package cli

// paint colours text for a terminal, and leaves it alone elsewhere.
type paint struct{ on bool }

// paint honours NO_COLOR (https://no-color.org).
func (a *app) paint() paint {
	return paint{a.env.OutTerminal && a.env.Getenv("NO_COLOR") == "" && a.env.Getenv("TERM") != "dumb"}
}

func (p paint) code(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) good(s string) string  { return p.code("32", s) }
func (p paint) bad(s string) string   { return p.code("31", s) }
func (p paint) busy(s string) string  { return p.code("33", s) }
func (p paint) faint(s string) string { return p.code("2", s) }
func (p paint) bold(s string) string  { return p.code("1", s) }
