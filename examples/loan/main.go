package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers/saga"
)

func main() {
	dir, err := os.MkdirTemp("", "millbridge-loan-")
	check(err)
	defer os.RemoveAll(dir)
	town := newTown()
	defer town.Close()
	ctx := context.Background()
	a, err := open(ctx, filepath.Join(dir, "data"), town.URL, settings{pace: pace{patience: 48 * time.Hour, pause: 50 * time.Millisecond}})
	check(err)
	defer a.close()

	check(a.borrow(ctx, "loan-1", Loan{Patron: "ada", Title: "Middlemarch", Record: "ocm123"}))
	waits := func(signal string) func(saga.Saga[Loan]) bool {
		return func(l saga.Saga[Loan]) bool { return slices.Equal(l.Waits, []string{"signal " + signal}) }
	}
	_, err = a.until(ctx, "loan-1", waits("arrived"))
	check(err)
	check(a.tell(ctx, "loan-1", "arrived", struct{}{}))
	_, err = a.until(ctx, "loan-1", waits("returned"))
	check(err)
	check(a.tell(ctx, "loan-1", "returned", Returned{"as new"}))
	_, err = a.until(ctx, "loan-1", func(l saga.Saga[Loan]) bool { return l.Status.Ended() })
	check(err)

	events, err := a.in.Store.SagaHistory(ctx, "loan", "loan-1")
	check(err)
	for _, e := range events {
		line := fmt.Sprintf("%2d  %-9s %-9s %s", e.N, e.Step, e.Kind, e.Rationale)
		fmt.Println(strings.TrimRight(line, " "))
	}
	_, err = a.bridge.Drain(ctx) // a letter is told, not asked: it is written when it is written
	check(err)
	letters, err := a.letters(ctx)
	check(err)
	fmt.Println("letters:", letters)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
