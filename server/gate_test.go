package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx := t.Context()
		passed := func(what string, want bool) func() {
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(ctx)
			go func() { done <- g.pass(ctx) }()
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil || !want {
					t.Fatalf("%s: passed with %v, want %v", what, err, want)
				}
			default:
				if want {
					t.Fatalf("%s: doesn't pass", what)
				}
			}
			return func() { // it passes now, or is canceled
				synctest.Wait()
				select {
				case err := <-done:
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				default:
					cancel()
					if err := <-done; !errors.Is(err, context.Canceled) {
						t.Fatalf("%s: canceled with %v", what, err)
					}
				}
				cancel()
			}
		}
		passed("nothing began", true)
		passed("nothing began, again", true)
		leave := g.enter()
		first := passed("one is under way", false)
		later := g.enter() // of the new turn: it holds up only those who come after it
		second := passed("two are under way", false)
		leave()
		first()
		second() // canceled: later hasn't ended
		third := passed("one of an older turn is under way", false)
		later()
		third()
		passed("all have ended", true)
		if n := len(g.turns); n > 2 {
			t.Errorf("%d turns are kept", n)
		}
	})
}
