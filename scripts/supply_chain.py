"""Checks and lists the crates of Cargo.lock: `deny` enforces deny.toml, `sbom` prints a CycloneDX document.

Reads `cargo metadata` and `cargo tree`, and compiles nothing. Used by scripts/deny and scripts/sbom.
"""

import json
import re
import subprocess
import sys
import tomllib
import uuid

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def metadata(targets):
    platforms = [word for target in targets for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *platforms]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def used(targets, *arguments):
    """Name and version of the packages in a build. `cargo metadata` also lists those of features that are off."""
    found = set()
    for target in targets:
        command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p}", "--target", target, *arguments]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        found |= {(words[0], words[1].removeprefix("v")) for words in map(str.split, lines) if words}
    return found


def allows(expression, allowed):
    """Evaluates an SPDX expression: `/` is an old spelling of OR."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def peek():
        return words[position] if position < len(words) else None

    def take():
        nonlocal position
        position += 1
        return words[position - 1]

    def term():
        if peek() == "(":
            take()
            value = either()
            if take() != ")":
                raise ValueError(expression)
            return value
        licence = take()
        if peek() == "WITH":
            take()
            licence = f"{licence} WITH {take()}"
        return licence in allowed

    def both():
        value = term()
        while peek() == "AND":
            take()
            value = term() and value
        return value

    def either():
        value = both()
        while peek() == "OR":
            take()
            value = both() or value
        return value

    value = either()
    if position != len(words):
        raise ValueError(expression)
    return value


def violations(found, built, rules):
    members = set(found["workspace_members"])
    allowed = set(rules["licenses"]["allow"])
    banned = {ban["crate"]: ban["reason"] for ban in rules["bans"]["deny"]}
    for package in sorted(found["packages"], key=lambda it: (it["name"], it["version"])):
        if (package["name"], package["version"]) not in built:
            continue
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        if licence is None:
            yield f"{name}: no license expression"
        elif not allows(licence, allowed):
            yield f"{name}: license {licence} is not allowed"
        if package["name"] in banned:
            yield f"{name}: banned: {banned[package['name']]}"
        if package["id"] not in members and package["source"] != CRATES_IO:
            yield f"{name}: unknown source {package['source']}"
        for dependency in package["dependencies"] if package["id"] in members else []:
            if dependency["req"] == "*" and not dependency.get("path"):
                yield f"{name}: wildcard version of {dependency['name']}"


def deny():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    targets = rules["graph"]["targets"]
    built = used(targets, "--workspace", "--edges", "normal,build,dev")
    found = list(violations(metadata(targets), built, rules))
    for violation in found:
        print(f"error: {violation}", file=sys.stderr)
    sys.exit(1 if found else 0)


def component(package, checksums):
    reference = f"pkg:cargo/{package['name']}@{package['version']}"
    entry = {"type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"], "purl": reference}
    if package["license"]:
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def sbom():
    with open("deny.toml", "rb") as file:
        targets = tomllib.load(file)["graph"]["targets"]
    with open("Cargo.lock", "rb") as file:
        locked = file.read()
    found = metadata(targets)
    packages = {package["id"]: package for package in found["packages"]}
    root = found["resolve"]["root"]
    built = used(targets, "--package", "petasos", "--edges", "normal,build")
    ids = {id for id, package in packages.items() if (package["name"], package["version"]) in built}
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in tomllib.loads(locked.decode())["package"]}
    components = {id: component(packages[id], checksums) for id in ids}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}

    def needs(id):
        return sorted({components[it["pkg"]]["bom-ref"] for it in nodes[id]["deps"] if it["pkg"] in ids})

    main = components.pop(root) | {"type": "application"}
    dependencies = [{"ref": main["bom-ref"], "dependsOn": needs(root)}]
    dependencies += [{"ref": entry["bom-ref"], "dependsOn": needs(id)} for id, entry in sorted(components.items())]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same lock file gives the same document.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, locked.decode())}",
        "version": 1,
        "metadata": {"component": main},
        "components": sorted(components.values(), key=lambda entry: entry["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda entry: entry["ref"]),
    }
    json.dump(document, sys.stdout, indent=1)
    print()


def selftest():
    allowed = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"}
    for expression, want in [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("MIT/GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(GPL-3.0 OR MIT) AND Apache-2.0", True),
        ("GPL-3.0 OR MIT AND BSD-3-Clause", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT WITH LLVM-exception", False),
    ]:
        assert allows(expression, allowed) == want, expression
    package = {"id": "x", "name": "ring", "version": "1.0.0", "license": "GPL-3.0", "source": "git+https://x", "dependencies": []}
    member = {"id": "m", "name": "m", "version": "0.1.0", "license": "MIT", "source": None}
    member["dependencies"] = [{"name": "ring", "req": "*"}]
    unused = package | {"id": "y", "version": "2.0.0"}
    found = {"packages": [package, unused, member], "workspace_members": ["m"]}
    built = {("ring", "1.0.0"), ("m", "0.1.0")}
    rules = {"licenses": {"allow": ["MIT"]}, "bans": {"deny": [{"crate": "ring", "reason": "r"}]}}
    wrong = list(violations(found, built, rules))
    assert [it.split(": ", 1)[1].split(" ")[0] for it in wrong] == ["wildcard", "license", "banned:", "unknown"], wrong


if __name__ == "__main__":
    {"deny": deny, "sbom": sbom, "selftest": selftest}[sys.argv[1]]()
