// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/service"
	"github.com/kuryr/raven/service/backdoor"
	"github.com/kuryr/raven/service/config"
	"github.com/kuryr/raven/service/log"
)

// Example is a whole daemon that has nothing to do with Raven: options, a log, a backdoor, and a service that does
// something every now and then.
func Example() {
	options := append(service.Options(), config.Option{
		Group: "greeter", Name: "name", Default: "world", Help: "Whom to greet.", Declarer: "greeter",
	})
	options = append(append(options, log.Options()...), backdoor.Options()...)
	values, _, err := config.Load(config.Sources{Environ: []string{"OS_GREETER__NAME=corvids"}}, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	quiet := slog.New(slog.DiscardHandler)
	greet := service.NewTask(func(ctx context.Context) error {
		group := service.NewGroup(service.GroupConfig{Logger: quiet})
		_, err := group.AddTimer(ctx, service.Loop{Name: "greeting", Interval: time.Hour}, func(context.Context) error {
			fmt.Println("hello,", values.String("greeter", "name"))
			return service.ErrDone
		})
		if err != nil {
			return err
		}
		return group.Wait()
	}, nil)
	launcher := service.NewLauncher(service.Config{
		Logger: quiet, Notify: service.NewNotifier(os.Getenv),
		Grace:  func() time.Duration { return values.Duration("", "graceful_shutdown_timeout") },
		Mutate: func() bool { return values.String("", "restart_method") == service.RestartMutate },
	})
	launcher.Add("greeter", greet)
	fmt.Println("status", service.ExitStatus(launcher.Run(context.Background())))
	// Output:
	// hello, corvids
	// status 0
}

// A looping call ends when its function returns ErrDone or Done, when it fails, and when its context ends.
func ExampleLoop() {
	count := 0
	value, err := service.Loop{Clock: clock.RealClock{}, Name: "counting", Interval: time.Millisecond}.Call(
		context.Background(), func(context.Context) error {
			if count++; count == 3 {
				return service.Done(count)
			}
			return nil
		})
	fmt.Println(value, err)
	// Output: 3 <nil>
}

// Periodic tasks run one after the other, each at its own spacing. Run calls RunDue until its context ends.
func ExamplePeriodicTasks() {
	say := func(what string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(what)
			return nil
		}
	}
	tasks, err := service.NewPeriodicTasks(service.PeriodicConfig{Logger: slog.New(slog.DiscardHandler)},
		service.PeriodicTask{Name: "refresh", Spacing: time.Minute, Immediately: true, Run: say("refreshing")},
		service.PeriodicTask{Name: "report", Spacing: time.Hour, Run: say("reporting")},
		service.PeriodicTask{Name: "audit", Disabled: true, Run: say("auditing")},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := tasks.RunDue(context.Background(), true); err != nil {
		fmt.Println(err)
	}
	// Output: refreshing
}
