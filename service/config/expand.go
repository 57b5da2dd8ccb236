// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// expand substitutes $name, $group.name, ${name} and ${group.name}, and turns $$ and \$ into a dollar sign. Any other
// dollar sign stays as it is. It returns whether a secret was put in, and false after reporting an unknown name or a
// cycle.
func (l *loader) expand(o Option, at Origin, text string) (expanded string, secret, ok bool) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			b.WriteString(text)
			return b.String(), secret, true
		}
		if i > 0 && text[i-1] == '\\' {
			b.WriteString(text[:i-1] + "$")
			text = text[i+1:]
			continue
		}
		b.WriteString(text[:i])
		name, length := reference(text[i:])
		switch {
		case name != "":
			value, isSecret, ok := l.lookup(o, at, name)
			if !ok {
				return "", false, false
			}
			b.WriteString(value)
			secret = secret || isSecret
		case length == 2: // $$
			b.WriteByte('$')
		default:
			b.WriteByte('$')
		}
		text = text[i+length:]
	}
}

// reference reads what follows a dollar sign: the name that it refers to, if any, and the length of the whole.
func reference(text string) (name string, length int) {
	rest := text[1:]
	switch {
	case rest == "":
		return "", 1
	case rest[0] == '$':
		return "", 2
	case rest[0] == '{':
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return "", 1
		}
		if inner := rest[1:end]; isStart(inner) && strings.Trim(inner, nameChars()+":-") == "" {
			return inner, end + 2
		}
		return "", 1
	case isStart(rest):
		end := len(rest) - len(strings.TrimLeft(rest, nameChars()))
		name = strings.TrimRight(rest[:end], ".")
		return name, 1 + len(name)
	}
	return "", 1
}

func nameChars() string { return "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_." }

func isStart(text string) bool {
	return text != "" && (text[0] == '_' || text[0]|0x20 >= 'a' && text[0]|0x20 <= 'z')
}

// lookup finds what a reference of the option o names: with a group exactly that option, else one of o's own group,
// else of DEFAULT.
func (l *loader) lookup(o Option, at Origin, ref string) (text string, secret, ok bool) {
	names := []Name{{o.Group, ref}, {DefaultGroup, ref}}
	if dot := strings.LastIndexByte(ref, '.'); dot >= 0 {
		names = append(names, Name{ref[:dot], ref[dot+1:]}.canonical())
	}
	for _, n := range names {
		i, known := l.reg.byName[n]
		if !known {
			continue
		}
		target := l.reg.options[i]
		r := l.resolve(target)
		switch {
		case r.busy:
			l.fail(o, at, "refers to itself by way of $%s", ref)
			return "", false, false
		case r.failed:
			return "", false, false
		case target.Type == Multi:
			l.fail(o, at, "%s has several values and cannot be substituted", n)
			return "", false, false
		case len(r.texts) == 0:
			return "", target.Secret, true
		}
		return r.texts[len(r.texts)-1], target.Secret || r.secret, true
	}
	shown := "$" + ref
	if o.Secret {
		shown = "a name after a $"
	}
	l.fail(o, at, "%s is no known option; write $$ for a dollar sign", shown)
	return "", false, false
}
