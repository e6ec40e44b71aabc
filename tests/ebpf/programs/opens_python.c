/* A program that opens the library of Python when it runs, and is that Python then: opens_python LIBRARY ARGUMENTS */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
	void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
	int (*run)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "Py_BytesMain") : 0;
	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return run(count - 1, arguments + 1);
}
