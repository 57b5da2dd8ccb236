// SPDX-License-Identifier: Apache-2.0

// Package log makes the program's slog.Logger from the [DEFAULT] options and hides secrets in everything that it
// writes. It must never write a registered secret or the value of an attribute that is named like one.
package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"log/syslog"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"github.com/kuryr/raven/service/config"
)

const declarer = "kuryr.raven"

// Options declares the options of the log.
func Options() []config.Option {
	return []config.Option{
		{
			Name: "debug", Type: config.Boolean, Default: "false", Mutable: true, Declarer: declarer,
			Help: "Log at debug level, whatever log_level says.",
		},
		{
			Name: "log_level", Default: "INFO", Choices: []string{"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"},
			IgnoreCase: true,
			ChoiceHelp: map[string]string{
				"DEBUG": "Every reconcile", "INFO": "What changes", "WARNING": "What an operator should check",
				"ERROR": "What failed", "CRITICAL": "The same as ERROR",
			},
			Env: []string{"LOG_LEVEL"}, Mutable: true, Declarer: declarer, Help: "The least severe level that is logged.",
		},
		{
			Name: "log_file", Declarer: declarer, StartOnly: true,
			Help: "A file to log to instead of standard error. A relative path is one below log_dir. It is opened anew at " +
				"SIGHUP.",
		},
		{
			Name: "log_dir", Declarer: declarer, StartOnly: true,
			Help: "The folder of log_file; without a log_file the log is named after the program.",
		},
		{
			Name: "use_json", Type: config.Boolean, Default: "false", Declarer: declarer, StartOnly: true,
			Help: "Log JSON, one object per line.",
		},
		{
			Name: "use_syslog", Type: config.Boolean, Default: "false", Declarer: declarer, StartOnly: true,
			Help: "Log to the local syslog, and to log_file too if that is set.",
		},
	}
}

// Config says what is logged, and where to.
type Config struct {
	Level  slog.Level
	File   string // empty: Stderr
	JSON   bool
	Syslog bool
	// Program names the program to syslog.
	Program string
	// FileOption is where File was configured, for the error of a path that cannot be opened.
	FileOption config.Error
	// Stderr is where the log goes without a file or syslog; nil is os.Stderr.
	Stderr io.Writer
	// Color colours the levels; see Terminal. Files are never coloured.
	Color bool
	// DialSyslog opens syslog; nil opens the local one.
	DialSyslog func() (Syslog, error)
}

// FromConfig reads the options that Options declares. The program names the log file in a log_dir without log_file.
func FromConfig(v *config.Values, program string) Config {
	c := Config{Level: level(v), JSON: v.Bool("", "use_json"), Syslog: v.Bool("", "use_syslog"), Program: program}
	file, dir := v.String("", "log_file"), v.String("", "log_dir")
	option := "log_file"
	switch {
	case file != "" && dir != "" && !filepath.IsAbs(file):
		c.File = filepath.Join(dir, file)
	case file != "":
		c.File = file
	case dir != "":
		c.File = filepath.Join(dir, program+".log")
		option = "log_dir"
	}
	origin := v.Origin("", option)
	c.FileOption = config.Error{File: origin.File, Line: origin.Line, Group: config.DefaultGroup, Option: option}
	return c
}

func level(v *config.Values) slog.Level {
	if v.Bool("", "debug") {
		return slog.LevelDebug
	}
	switch v.String("", "log_level") {
	case "DEBUG":
		return slog.LevelDebug
	case "WARNING":
		return slog.LevelWarn
	case "ERROR", "CRITICAL":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Terminal says whether a file is a terminal that may be coloured: NO_COLOR, as getenv knows it, must be empty.
func Terminal(f *os.File, getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Log is an open log.
type Log struct {
	logger   *slog.Logger
	redactor *Redactor
	level    slog.LevelVar
	file     *reopener // nil without a file
	syslog   Syslog    // nil without syslog
	recent   recent
}

// stderr is where the log goes without a file and syslog, and what a file does not take.
func (c Config) stderr() io.Writer {
	if c.Stderr == nil {
		return os.Stderr
	}
	return c.Stderr
}

// New opens the log. Its error for a path that cannot be opened is a *config.Error naming the option. The redactor
// may be nil.
func New(c Config, redactor *Redactor) (*Log, error) {
	if redactor == nil {
		redactor = NewRedactor()
	}
	l := &Log{redactor: redactor}
	l.level.Set(c.Level)
	var handlers []slog.Handler
	if c.Syslog {
		dial := c.DialSyslog
		if dial == nil {
			dial = func() (Syslog, error) { return syslog.New(syslog.LOG_INFO|syslog.LOG_DAEMON, c.Program) }
		}
		out, err := dial()
		if err != nil {
			return nil,
				&config.Error{Group: config.DefaultGroup, Option: "use_syslog", Message: "opening the local syslog: " + err.Error()}
		}
		l.syslog = out
		handlers = append(handlers, &syslogHandler{out: out, format: newFormat(&l.level, c.JSON)})
	}
	if c.File != "" {
		file, err := openFile(c.File, c.stderr())
		if err != nil {
			l.Close() //nolint:errcheck // the first error counts
			problem := c.FileOption
			problem.Message = err.Error()
			return nil, &problem
		}
		l.file = file
		handlers = append(handlers, newHandler(file, &l.level, c.JSON, false))
	}
	if len(handlers) == 0 {
		out := c.stderr()
		handlers = append(handlers, newHandler(out, &l.level, c.JSON, c.Color))
	}
	handlers = append(handlers, newTextHandler(&l.recent, &l.level, false))
	l.logger = slog.New(redactor.Handler(slog.NewMultiHandler(handlers...)))
	return l, nil
}

func newHandler(w io.Writer, level slog.Leveler, json, color bool) slog.Handler {
	if json {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return newTextHandler(w, level, color)
}

// Logger returns the logger, which hides secrets.
func (l *Log) Logger() *slog.Logger { return l.logger }

// Redactor returns what hides secrets in this log.
func (l *Log) Redactor() *Redactor { return l.redactor }

// SetLevel changes the least severe level that is logged.
func (l *Log) SetLevel(level slog.Level) { l.level.Set(level) }

// Reset opens the log file anew, after it was rotated. On an error the old one stays in use.
func (l *Log) Reset(context.Context) error {
	if l.file == nil {
		return nil
	}
	return l.file.reopen()
}

// Close closes what New opened. The logger must not be used any more.
func (l *Log) Close() error {
	var errs []error
	if l.file != nil {
		errs = append(errs, l.file.close())
	}
	if l.syslog != nil {
		errs = append(errs, l.syslog.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the log: %w", err)
	}
	return nil
}

// cause drops the path from a file error, which the caller names in words of its own.
func cause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
