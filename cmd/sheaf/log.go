package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
)

// logFlags are those of the commands that serve.
func logFlags(level string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "log-level", Usage: "least `LEVEL` to log: debug, info, warn or error", Value: level},
		&cli.StringFlag{Name: "log-format", Usage: "`FORMAT` of the log on stderr: text or json", Value: "text"},
	}
}

// logOptions say what is logged, and how.
type logOptions struct{ Level, Format string }

func logOptionsOf(c *cli.Context) logOptions {
	return logOptions{Level: c.String("log-level"), Format: c.String("log-format")}
}

func (o logOptions) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, errs.New(errs.InvalidArgument, "", fmt.Sprintf("log level %q: want debug, info, warn or error", o.Level))
	}
	h := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	}
	return nil, errs.New(errs.InvalidArgument, "", fmt.Sprintf("log format %q: want text or json", o.Format))
}
