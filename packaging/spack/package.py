"""Spack: the command, built from the source archive of `cargo xtask dist`."""

import os

from spack.package import *


class Sirtaki(Package):
    """Distributed deep learning: training, search and inference on many processes."""

    # Without a mirror, Spack looks for the archive in the folder in which it is started.
    url = f"file://{os.getcwd()}/sirtaki-0.1.0-source.tar.gz"
    manual_download = True

    license("Apache-2.0 OR MIT")
    version("0.1.0")

    depends_on("rust@1.95:", type="build")
    depends_on("c", type="build")

    def install(self, spec, prefix):
        cargo = which("cargo")
        cargo("install", "--locked", "--root", prefix, "--path", "crates/sirtaki-cli")
        install_tree("data/mnist", prefix.share.sirtaki.mnist)
        sirtaki = Executable(prefix.bin.sirtaki)
        sirtaki("man", "--all", prefix.share.man.man1)

    def setup_run_environment(self, env):
        env.set("SIRTAKI_DATA_FOLDER", self.prefix.share.sirtaki)
