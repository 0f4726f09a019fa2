"""Makes the jar of LinkLogStore.java with the compiler that Spark ships: a Java without `javac` is enough."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

SOURCE = Path(__file__).with_name("LinkLogStore.java")
CLASS = "checker.LinkLogStore"


def make_jar(delta_jars: Sequence[str], folder: Path) -> Path:
    """Delta and Hadoop are needed to compile it."""
    own = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    py4j = next(jar for jar in own if jar.name.startswith("py4j-"))
    compiler = [jar for jar in own if jar.name.startswith(("janino-", "commons-compiler-"))]
    needed = [*delta_jars, *(str(jar) for jar in own if jar.name.startswith("hadoop-client-"))]
    port = launch_gateway(jarpath=str(py4j), classpath=":".join(map(str, compiler)), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        _compile(gateway, needed, folder)
    finally:
        gateway.shutdown()
    jar = folder / "link-log-store.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for made in folder.rglob("*.class"):
            archive.write(made, made.relative_to(folder))
    return jar


def _compile(gateway: JavaGateway, needed: Sequence[str], folder: Path) -> None:
    file = gateway.jvm.java.io.File
    compiler = gateway.jvm.org.codehaus.janino.Compiler()
    compiler.setClassPath(_files(gateway, needed))
    compiler.setDestinationDirectory(file(str(folder)), False)
    compiler.compile(_files(gateway, [str(SOURCE)]))


def _files(gateway: JavaGateway, paths: Sequence[str]) -> object:
    made = gateway.new_array(gateway.jvm.java.io.File, len(paths))
    for place, path in enumerate(paths):
        made[place] = gateway.jvm.java.io.File(path)
    return made
