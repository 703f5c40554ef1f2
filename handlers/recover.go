package handlers

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/millbridge/millbridge/schema"
)

// A PanicError is a panic of a handler, caught and turned into an error.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it is an error, but not its kind: a panic is always worth another attempt.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return schema.WithKind(schema.Temporary, err)
}

// Recover calls f, which is or calls a handler, and returns its error. A panic of f becomes a [*PanicError], and so does an
// error that panics when it is read, as one that holds a nil pointer may: whoever wrote it down later would panic in the
// handler's place.
func Recover(f func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if e, ok := v.(error); ok {
			v = readable(e)
		}
		err = &PanicError{Value: v, Stack: debug.Stack()}
	}()
	return readable(f())
}

// readable returns err, or a panic that reading it or what it wraps leads to.
func readable(err error) (out error) {
	if err == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			out = &PanicError{Value: fmt.Sprintf("the error, a %T, cannot be read: %v", err, v), Stack: debug.Stack()}
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, errNone)
	return err
}

// errNone is in no error: to look for it goes through all that an error wraps.
var errNone = errors.New("none")
