package s3test

import (
	"net/http"
	"testing"
)

// The first to run builds the server; `make test-go` lets this test be it.
func TestServerAnswers(t *testing.T) {
	s := Start(t, "b")
	resp, err := http.Get(s.URL + "/b")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("a request without a signature is answered %s", resp.Status)
	}
	if s.Seen("GET /b") != 1 {
		t.Error("the request wasn't counted")
	}
}
