// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// view shows live what became of the workload: on a terminal as a picture that is redrawn, elsewhere as a line for
// each change.
type view struct {
	out    io.Writer
	stage  *stage
	daemon *daemon
	life   *workload
	redraw bool
	screen int // the terminal's file descriptor, with redraw
	colour bool
	began  time.Time
	said   map[string]string
	counts string
	width  int // of the screen when it was last drawn
	height int
	page   atomic.Int64 // how often the next page was asked for
}

func newView(out io.Writer, s *stage, d *daemon, life *workload) *view {
	v := &view{out: out, stage: s, daemon: d, life: life, began: time.Now(), said: map[string]string{}}
	v.screen, v.redraw = terminal(out)
	v.colour = v.redraw && os.Getenv("NO_COLOR") == ""
	return v
}

func (v *view) run(ctx context.Context) {
	if v.redraw && term.IsTerminal(int(os.Stdin.Fd())) {
		go v.turnPages(os.Stdin)
	}
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			v.show(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			v.show(ctx)
		}
	}
}

// turnPages shows the next page at each line that is read: Enter needs no other mode of the terminal. It ends with the
// process.
func (v *view) turnPages(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		v.page.Add(1)
	}
}

func (v *view) show(ctx context.Context) {
	r, err := v.daemon.status(ctx, nil)
	if err != nil {
		return // not up yet, or gone: whoever started it says so
	}
	if v.redraw {
		v.draw(r)
	} else {
		v.lines(r)
	}
}

// workloadKey is what the lines about the workload begin with.
const workloadKey = "workload"

// lines prints a line for each object that changed, and the counts when all is quiet again.
func (v *view) lines(r *report) {
	now := map[string]string{}
	if did := v.life.did(); did != "" {
		now[workloadKey] = did
	}
	pods := v.pods()
	for _, o := range r.Objects {
		name := strings.ToLower(o.Kind) + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
		text := stateText(o)
		switch o.Kind {
		case "Namespace":
			text += "  " + networkText(o)
		case "Pod":
			text += "  " + strings.Join(portCells(o, pods[o.Namespace+"/"+o.Name]), " ")
		case "Service":
			text += "  " + strings.Join(serviceCells(o), " ")
		default:
			continue
		}
		now[name] = strings.TrimSpace(text)
	}
	keys := make([]string, 0, len(now)+len(v.said))
	for key := range now {
		keys = append(keys, key)
	}
	for key := range v.said {
		if _, still := now[key]; !still {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	changed := false
	for _, key := range keys {
		text, still := now[key]
		if !still {
			text = "gone"
		}
		if v.said[key] != text {
			changed = changed || key != workloadKey
			fmt.Fprintf(v.out, "%7.1fs  %s: %s\n", time.Since(v.began).Seconds(), key, text)
		}
	}
	v.said = now
	if counts := v.countsText(r); !changed && counts != v.counts {
		v.counts = counts
		fmt.Fprintf(v.out, "%7.1fs  %s\n", time.Since(v.began).Seconds(), counts)
	}
}

// draw redraws the whole picture, without clearing the screen first so that it does not flicker.
func (v *view) draw(r *report) {
	width, height, err := term.GetSize(v.screen)
	if err != nil {
		width, height = 80, 24
	}
	lines := v.picture(r, v.pods(), height-1)
	var b strings.Builder
	if width != v.width || height != v.height {
		b.WriteString("\x1b[2J")
		v.width, v.height = width, height
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString(cut(line, width))
		b.WriteString("\x1b[0m\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(v.out, b.String())
}

// picture is the lines of the picture, at most so many: what is not done comes first, then what changed last.
func (v *view) picture(r *report, pods map[string]podFacts, height int) []string {
	objects, costs, made := v.countTexts(r)
	lines := []string{
		fmt.Sprintf("%s  %s  %s", v.paint("1", "raven"), time.Since(v.began).Truncate(time.Second), objects),
		costs,
		made,
		"workload: " + v.life.did(),
		v.paint("2", "ways in: cat "+v.stage.help()+"   Ctrl-C stops"),
		"",
	}
	var rows [][]string
	for _, o := range inOrder(r.Objects) {
		facts := podFacts{}
		if o.Kind == "Pod" {
			facts = pods[o.Namespace+"/"+o.Name]
		}
		rows = append(rows, []string{
			shortKinds()[o.Kind], shortName(strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")), facts.phase,
			v.paint(stateColours()[o.State], shortState(o)),
			hasText(o, facts),
		})
	}
	rows, footer := v.pageOf(rows, height-len(lines)-1)
	table := columns(append([][]string{{"KIND", "OBJECT", "POD", "STATE", "HAS"}}, rows...))
	table[0] = v.paint("1", table[0])
	return append(append(lines, table...), footer...)
}

// pageOf is the page of rows to show, and the line below it; none where there is room for all.
func (v *view) pageOf(rows [][]string, room int) (page [][]string, footer []string) {
	if len(rows) <= room || room < 2 {
		return rows[:min(len(rows), max(room, 0))], nil
	}
	size := room - 1
	pages := (len(rows) + size - 1) / size
	n := int(v.page.Load() % int64(pages))
	footer = []string{fmt.Sprintf("page %d of %d, the latest changes first; Enter: the next page", n+1, pages)}
	return rows[n*size : min(len(rows), (n+1)*size)], footer
}

// inOrder are the namespaces, pods and services: those that are not done first, then the latest.
func inOrder(list []object) []object {
	var shown []object
	for _, o := range list {
		if o.Kind == "Namespace" || o.Kind == "Pod" || o.Kind == "Service" {
			shown = append(shown, o)
		}
	}
	slices.SortStableFunc(shown, func(a, b object) int {
		if (a.State == "done") != (b.State == "done") {
			if a.State == "done" {
				return 1
			}
			return -1
		}
		return b.Since.Compare(a.Since)
	})
	return shown
}

// hasText is what an object has, or why it has nothing yet.
func hasText(o object, facts podFacts) string {
	balanced := o.Kind == "Service" && serviceCells(o)[1] != "" // its load balancer's status says why it waits
	if o.State != "done" && len(o.Reasons) > 0 && !balanced {
		return o.Reasons[0]
	}
	switch o.Kind {
	case "Namespace":
		_, subnets, _ := strings.Cut(networkText(o), "subnet ")
		return subnets
	case "Pod":
		cells := portCells(o, facts)
		return strings.TrimSpace(cells[1] + " " + cells[0])
	default:
		return strings.Join(slices.DeleteFunc(serviceCells(o), func(cell string) bool { return cell == "" }), " ")
	}
}

// shortKinds are the kinds as kubectl shortens them.
func shortKinds() map[string]string {
	return map[string]string{"Namespace": "ns", "Pod": "pod", "Service": "svc"}
}

// maxName is how much room the picture has for a name.
const maxName = 26

// shortName leaves out the middle of a long name: the ends of pods' names tell them apart.
func shortName(name string) string {
	const end = 6
	if utf8.RuneCountInString(name) <= maxName {
		return name
	}
	letters := []rune(name)
	return string(letters[:maxName-end-1]) + "…" + string(letters[len(letters)-end:])
}

// podFacts are what Kubernetes says of a pod.
type podFacts struct {
	phase string
	host  bool // on its host's network
}

// pods are what Kubernetes says of the pods, by namespace/name.
func (v *view) pods() map[string]podFacts {
	list, err := v.stage.kube.List(podsGVR(), "")
	if err != nil {
		return nil
	}
	facts := map[string]podFacts{}
	for _, p := range list {
		meta, _ := p["metadata"].(map[string]any)
		status, _ := p["status"].(map[string]any)
		spec, _ := p["spec"].(map[string]any)
		phase, _ := status["phase"].(string)
		if meta["deletionTimestamp"] != nil {
			phase = "Terminating"
		}
		facts[fmt.Sprint(meta["namespace"], "/", meta["name"])] = podFacts{phase, spec["hostNetwork"] == true}
	}
	return facts
}

// countsText says how many objects are in which state, and what they cost.
func (v *view) countsText(r *report) string {
	objects, costs, made := v.countTexts(r)
	return objects + "; " + costs + "; " + made
}

func (v *view) countTexts(r *report) (objects, costs, made string) {
	var parts []string
	for _, state := range []string{"done", "pending", "waiting", "failing", "terminal"} {
		if n := r.Counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	cloud, kube := v.stage.cloud.Stats(), v.stage.kube.Stats()
	if len(parts) == 0 {
		parts = []string{"none yet"}
	}
	costs = fmt.Sprintf("cloud: %d requests, %d writes; Kubernetes: %d patches", cloud.Requests, cloud.Writes,
		kube.Counts["patch pods"]+kube.Counts["patch namespaces"]+kube.Counts["patch services"])
	made = fmt.Sprintf("made: %d ports by %d, %d load balancers, %d changes of members", cloud.Items["POST port"],
		cloud.Counts["POST port"], cloud.Counts["POST loadbalancer"], cloud.Counts["PUT member_batch"])
	return "objects: " + strings.Join(parts, ", "), costs, made
}

func stateColours() map[string]string {
	return map[string]string{"done": "32", "waiting": "33", "pending": "33", "failing": "31", "terminal": "31"}
}

// shortState is the state in one word.
func shortState(o object) string {
	if o.Deleted {
		return "going"
	}
	return o.State
}

func (v *view) paint(code, text string) string {
	if !v.colour || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func stateText(o object) string {
	text := shortState(o)
	if len(o.Reasons) > 0 && o.State != "done" {
		text += ": " + o.Reasons[0]
	}
	return text
}

// networkText says what a namespace has: its network, subnets and router.
func networkText(o object) string {
	var network, router string
	var subnets []string
	for _, r := range o.Resources {
		cidr, _ := r.Attrs["cidr"].(string)
		switch {
		case r.Kind == "network" && !r.Shared && network == "":
			network = r.Name
		case r.Kind == "subnet" && !r.Shared:
			subnets = append(subnets, cidr)
		case r.Kind == "router":
			router = r.Name
		}
	}
	var parts []string
	for _, part := range [][2]string{{"network", network}, {"subnet", strings.Join(subnets, " ")}, {"router", router}} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	return strings.Join(parts, ", ")
}

// serviceCells says what a service has: the address of its load balancer, that one's status, its members, and its
// floating IPs.
func serviceCells(o object) []string {
	var vips, outside []string
	var ours northboundCells
	status, members := "", 0
	for _, r := range o.Resources {
		switch r.Kind {
		case "loadbalancer":
			if vip, ok := r.Attrs["vip_address"].(string); ok {
				vips = append(vips, vip)
			}
			status = r.Status
			members += len(membersOf(r))
		case "ovn_loadbalancer":
			ours.take(r)
		case "floatingip":
			if address, ok := r.Attrs["floating_ip_address"].(string); ok {
				outside = append(outside, address)
			}
		}
	}
	if addresses, backends := ours.besides(outside); len(addresses) > 0 {
		vips, status, members = append(vips, addresses...), "in OVN", members+backends
	}
	if len(vips) == 0 {
		return []string{"no load balancer", "", "", ""}
	}
	cells := []string{"VIP " + strings.Join(vips, " "), status, fmt.Sprintf("%d members", members), ""}
	if members == 1 {
		cells[2] = "1 member"
	}
	if len(outside) > 0 {
		cells[3] = "outside " + strings.Join(outside, " ")
	}
	return cells
}

// northboundCells gathers what OVN's load balancers of a service serve: the most backends of a port, by address.
type northboundCells map[string]int

func (c *northboundCells) take(r resource) {
	if *c == nil {
		*c = northboundCells{}
	}
	vips, _ := r.Attrs["vips"].([]any)
	for _, item := range vips {
		vip, _ := item.(map[string]any)
		address, _ := vip["address"].(string)
		backends, _ := vip["backends"].([]any)
		(*c)[address] = max((*c)[address], len(backends))
	}
}

// besides are the addresses but for those outside, and their backends.
func (c *northboundCells) besides(outside []string) (addresses []string, backends int) {
	for address, n := range *c {
		if !slices.Contains(outside, address) {
			addresses, backends = append(addresses, address), backends+n
		}
	}
	slices.Sort(addresses)
	return addresses, backends
}

// membersOf are the members of all pools of a load balancer.
func membersOf(r resource) []any {
	var all []any
	pools, _ := r.Attrs["pools"].([]any)
	for _, p := range pools {
		pool, _ := p.(map[string]any)
		members, _ := pool["members"].([]any)
		all = append(all, members...)
	}
	return all
}

// portCells says what a pod has: its port, and the addresses and the MAC address of that, or why it has none.
func portCells(o object, facts podFacts) []string {
	for _, r := range o.Resources {
		if r.Kind != "port" {
			continue
		}
		mac, _ := r.Attrs["mac_address"].(string)
		list, _ := r.Attrs["fixed_ips"].([]any)
		var addresses []string
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				if address, ok := m["ip_address"].(string); ok {
					addresses = append(addresses, address)
				}
			}
		}
		id, _, _ := strings.Cut(r.ID, "-")
		return []string{"port " + id, strings.Join(addresses, " "), mac}
	}
	switch {
	case facts.host:
		return []string{"no port: hostNetwork", "", ""}
	case facts.phase == "Succeeded" || facts.phase == "Failed":
		return []string{"no port: it has completed", "", ""}
	case o.State == "done":
		return []string{"no port: it wants none", "", ""}
	}
	return []string{"no port yet", "", ""}
}
