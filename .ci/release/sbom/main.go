// SPDX-License-Identifier: Apache-2.0

// Command sbom writes the modules that programs are made of as an SPDX document, version 2.3 in JSON:
//
//	sbom -version V -created UNIX-SECONDS -cache MODULE-CACHE PROGRAM... > FILE.spdx.json
//
// The same programs make the same bytes. What it has written can be read again by SPDX' own library.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/kuryr/raven/ci/release/modules"
)

const (
	home        = "https://github.com/kuryr/raven"
	root        = common.ElementID("raven")
	noAssertion = "NOASSERTION"
)

func main() {
	version := flag.String("version", "dev", "the version of the programs")
	created := flag.Int64("created", 0, "when they were made, in seconds since 1970")
	cache := flag.String("cache", "", "the folder of the module cache")
	flag.Parse()
	if flag.NArg() == 0 || *cache == "" {
		fmt.Fprintln(os.Stderr, "usage: sbom -version V -created UNIX-SECONDS -cache MODULE-CACHE PROGRAM...")
		os.Exit(2)
	}
	document, err := describe(*version, time.Unix(*created, 0).UTC(), *cache, flag.Args())
	if err == nil {
		err = write(os.Stdout, document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func describe(version string, created time.Time, cache string, programs []string) (*spdx.Document, error) {
	all, golang, err := modules.Of(programs)
	if err != nil {
		return nil, err
	}
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: "raven-" + version, DocumentNamespace: home + "/spdx/" + version,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "Raven developers"}},
			Created:  created.Format(time.RFC3339),
		},
	}
	add := func(id common.ElementID, path, version, sum, license string) {
		document.Packages = append(document.Packages, &spdx.Package{
			PackageName: path, PackageSPDXIdentifier: id, PackageVersion: version, PackageSourceInfo: sum,
			PackageDownloadLocation: noAssertion, PackageCopyrightText: noAssertion,
			PackageLicenseConcluded: license, PackageLicenseDeclared: license, IsFilesAnalyzedTagPresent: true,
			PackageExternalReferences: []*spdx.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
				Locator: "pkg:golang/" + path + "@" + strings.TrimPrefix(version, "go"),
			}},
		})
		from, relation := root, common.TypeRelationshipDependsOn
		if id == root {
			from, relation = "DOCUMENT", common.TypeRelationshipDescribe
		}
		document.Relationships = append(document.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(id)),
			Relationship: relation,
		})
	}
	add(root, strings.TrimPrefix(home, "https://"), version, "", "Apache-2.0")
	add("stdlib", "stdlib", golang, "", "BSD-3-Clause")
	unfit := regexp.MustCompile(`[^A-Za-z0-9.-]+`)
	for _, m := range all {
		licenses, err := m.Licenses(cache)
		if err != nil {
			return nil, err
		}
		id := common.ElementID(unfit.ReplaceAllString("module-"+m.Path+"-"+m.Version, "-"))
		add(id, m.Path, m.Version, "go.sum: "+m.Sum, strings.Join(licenses, " AND "))
	}
	return document, nil
}

// write writes a document once it was read back.
func write(to io.Writer, document *spdx.Document) error {
	var text bytes.Buffer
	if err := json.Write(document, &text, json.Indent("  ")); err != nil {
		return fmt.Errorf("writing SPDX: %w", err)
	}
	again, err := json.Read(bytes.NewReader(text.Bytes()))
	if err != nil {
		return fmt.Errorf("reading back what was written: %w", err)
	}
	if len(again.Packages) != len(document.Packages) {
		return fmt.Errorf("%d packages were written, and %d are read back", len(document.Packages), len(again.Packages))
	}
	_, err = to.Write(text.Bytes())
	return err
}
