from twisted_exec.runtimes.drivers import DriverMaker

endpoint = DriverMaker("endpoint", "endpoint_driver")
