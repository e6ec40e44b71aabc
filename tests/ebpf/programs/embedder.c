/* A program with a Python inside that never comes by Py_RunMain: it waits for its input to end, then runs a
 * script, twice in an interpreter of its own. Arguments: PYTHONHOME, script, and what the script is given. */
#include <Python.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	setenv("PYTHONHOME", argv[1], 1);
	for (int again = 0; again < 2; again++) {
		Py_Initialize();
		if (!again)
			while (getchar() != EOF)
				;
		wchar_t *given[8];
		for (int i = 2; i < argc; i++)
			given[i - 2] = Py_DecodeLocale(argv[i], 0);
		PySys_SetArgvEx(argc - 2, given, 1);
		FILE *script = fopen(argv[2], "r");
		if (!script || PyRun_SimpleFileExFlags(script, argv[2], 1, 0))
			return 1;
		Py_Finalize();
	}
	return 0;
}
