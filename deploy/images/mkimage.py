#!/usr/bin/env python3
"""Packs files into a one-layer OCI image archive; needs no container engine.

  mkimage.py --name rmq.test/tool:1 --out tool.tar \\
      --add ./tool:/usr/bin/tool --libs --entrypoint /usr/bin/tool

"{digest}" in the name stands for the first 12 digits of the manifest's digest.
The archive loads with `ctr -n k8s.io images import`, `skopeo`, `podman load`
or `docker load` (25 or newer). The same input gives the same bytes. Prints the
image's name.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import stat
import subprocess
import sys
import tarfile

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def libraries(path):
    """The shared libraries of an ELF program, with its loader; none if static."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    run = subprocess.run(["ldd", path], capture_output=True, text=True)
    if run.returncode != 0:
        if "not a dynamic executable" in run.stderr + run.stdout:
            return []
        raise SystemExit(f"mkimage: ldd {path}: {run.stderr.strip()}")
    found = []
    for line in run.stdout.splitlines():
        match = re.search(r"(?:=>\s*)?(/\S+)\s+\(0x", line)
        if match:
            found.append(match.group(1))
    return found


def collect(add, with_libs):
    """{path in the image: ('dir'|'file'|'link', source or target, mode)}"""
    tree = {}

    def put_dir(dst, mode=0o755):
        dst = dst.strip("/")
        if not dst:
            return
        put_dir(os.path.dirname(dst))
        tree.setdefault(dst, ("dir", None, mode))

    def put(src, dst):
        dst = dst.strip("/")
        put_dir(os.path.dirname(dst))
        info = os.lstat(src)
        if stat.S_ISLNK(info.st_mode):
            tree[dst] = ("link", os.readlink(src), 0o777)
        elif stat.S_ISDIR(info.st_mode):
            put_dir(dst)
            for name in sorted(os.listdir(src)):
                put(os.path.join(src, name), dst + "/" + name)
        elif stat.S_ISREG(info.st_mode):
            # What the umask of the builder was must not matter.
            tree[dst] = ("file", src, 0o755 if info.st_mode & 0o111 else 0o644)

    for item in add:
        src, sep, dst = item.rpartition(":")
        if not sep or not dst.startswith("/"):
            raise SystemExit(f"mkimage: --add wants SOURCE:/PATH, got {item!r}")
        put(os.path.realpath(src) if os.path.isfile(src) else src, dst)
    if with_libs:
        for dst, (kind, src, mode) in list(tree.items()):
            if kind == "file" and (mode & 0o111 or ".so" in os.path.basename(dst)):
                for lib in libraries(src):
                    put(os.path.realpath(lib), lib)
    for name in ("tmp", "etc", "proc", "sys", "dev", "run", "var/tmp"):
        put_dir(name, 0o1777 if name.endswith("tmp") else 0o755)
    return tree


def layer(tree):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for dst in sorted(tree):
            kind, src, mode = tree[dst]
            info = tarfile.TarInfo(dst)
            info.mode, info.mtime, info.uname, info.gname = mode, EPOCH, "root", "root"
            if kind == "dir":
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif kind == "link":
                info.type, info.linkname = tarfile.SYMTYPE, src
                tar.addfile(info)
            else:
                with open(src, "rb") as file:
                    info.size = os.fstat(file.fileno()).st_size
                    tar.addfile(info, file)
    return raw.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="full image name with a tag")
    parser.add_argument("--out", required=True)
    parser.add_argument("--add", action="append", default=[], metavar="SOURCE:/PATH")
    parser.add_argument("--libs", action="store_true", help="add the shared libraries of the programs added")
    parser.add_argument("--entrypoint", action="append", default=[])
    parser.add_argument("--cmd", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--user", default="")
    parser.add_argument("--workdir", default="/")
    parser.add_argument("--limit", type=int, default=0, metavar="MIB", help="fail if the files are more than this")
    parser.add_argument("--label", action="append", default=[])
    args = parser.parse_args()
    if "/" not in args.name or ":" not in args.name.rsplit("/", 1)[1]:
        sys.exit("mkimage: --name wants HOST/REPOSITORY:TAG")

    plain = layer(collect(args.add, args.libs))
    packed = gzip.compress(plain, compresslevel=1, mtime=0)
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] + args.env,
            "WorkingDir": args.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "mkimage.py"}],
    }
    if args.entrypoint:
        config["config"]["Entrypoint"] = args.entrypoint
    if args.cmd:
        config["config"]["Cmd"] = args.cmd
    if args.user:
        config["config"]["User"] = args.user
    if args.label:
        config["config"]["Labels"] = dict(item.split("=", 1) for item in args.label)

    blobs = {}

    def blob(data, media):
        if not isinstance(data, bytes):
            data = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs["blobs/sha256/" + digest] = data
        return {"mediaType": media, "digest": "sha256:" + digest, "size": len(data)}

    config_ref = blob(config, "application/vnd.oci.image.config.v1+json")
    layer_ref = blob(packed, "application/vnd.oci.image.layer.v1.tar+gzip")
    manifest_ref = blob(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config_ref,
            "layers": [layer_ref],
        },
        "application/vnd.oci.image.manifest.v1+json",
    )
    image = args.name.replace("{digest}", manifest_ref["digest"].removeprefix("sha256:")[:12])
    manifest_ref["annotations"] = {
        "io.containerd.image.name": image,
        "org.opencontainers.image.ref.name": image.rsplit(":", 1)[1],
    }
    files = dict(blobs)
    files["oci-layout"] = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest_ref]}).encode()
    temporary = args.out + ".new"
    with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(files[name]), 0o644, EPOCH
            tar.addfile(info, io.BytesIO(files[name]))
    os.replace(temporary, args.out)
    print(image)
    print(f"{args.out}: {len(packed)} bytes packed, {len(plain)} unpacked", file=sys.stderr)
    if args.limit and len(plain) > args.limit << 20:
        sys.exit(f"mkimage: {image} is larger than {args.limit} MiB")


if __name__ == "__main__":
    main()
