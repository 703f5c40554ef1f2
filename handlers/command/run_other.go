//go:build !linux && !darwin

package command

import (
	"context"
	"errors"
)

var errUnsupported = errors.New("this system is not supported: Linux and macOS are")

func (p *program) run(context.Context, []variable, []byte) (ending, error) {
	return ending{}, errUnsupported
}
